"""A figure that a notebook shows as vectors, whether or not pyplot is in use there. Brings matplotlib."""

from __future__ import annotations

from matplotlib.figure import Figure


class Picture(Figure):
    """A matplotlib figure: ``savefig`` and all else as usual."""

    def _repr_html_(self) -> str:
        from steinstream.report.style import as_svg

        width = round(96 * self.get_figwidth())
        return f'<div style="max-width:{width}px">{as_svg(self, "figure")}</div>'
