"""The experiments of the paper, and measurements beyond it. Not part of the installed package."""
