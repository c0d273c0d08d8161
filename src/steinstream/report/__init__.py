"""HTML report and figures of a kept set."""
