"""The help of a command with many options, in sections: what most people need comes first."""

from __future__ import annotations

import click

#: Which options of a command belong together, by the names that the program has for them.
SECTIONS = {
    "Most used": ("output", "size", "report", "weights", "order", "workers"),
    "Input": ("scores_file", "draws_name", "scores_name", "output_csv", "format", "transposed", "negate_scores",
              "trust_scores", "proxy", "on_bad"),
    "How many draws, and which": ("growth", "budget", "rule", "candidates", "anchor", "initial", "passes", "start"),
    "How KSD is measured": ("kernel", "scale", "paper"),
    "Other methods": ("method", "seed"),
    "Weights": ("linear", "burn_in"),
    "Stop and resume": ("checkpoint", "resume", "every", "until_idle"),
    "Workers": ("scheduler", "fan_in", "spare", "skip_corrupt"),
    "Watch": ("serve", "port"),
}  # fmt: skip


class Sectioned(click.Command):
    """A command that shows its options in the sections above; what is in none comes last."""

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections."""
        left = {option.name: option for option in self.get_params(context) if isinstance(option, click.Option)}
        parts = [(title, [left.pop(name) for name in names if name in left]) for title, names in SECTIONS.items()]
        for title, options in [*parts, ("Help", list(left.values()))]:
            lines = [line for line in (option.get_help_record(context) for option in options) if line]
            if lines:
                with formatter.section(title):
                    formatter.write_dl(lines)
