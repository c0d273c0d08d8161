"""Functions that build HTML. Text is escaped; strings of type `Markup` are inserted as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """String that contains HTML."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Convert a value to HTML: markup is returned unchanged, everything else is escaped.

    Returns
    -------
    Markup
        HTML.

    Examples
    --------
    >>> text("<b>"), text(Markup("<b>"))
    ('&lt;b&gt;', '<b>')
    """
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """Build one element; ``class_`` stands for the attribute class, ``data_value`` for data-value, None for none.

    Returns
    -------
    Markup
        HTML.

    Examples
    --------
    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    rendered = "".join(f' {name}="{escape(str(value))}"' for name, value in named.items())
    return Markup(f"<{tag}{rendered}>{''.join(map(text, content))}</{tag}>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], **attributes: object) -> Markup:
    """Build a table that scrolls if it is wider than the page. Its first column contains the row headers."""
    body = (element("tr", element("th", row[0], scope="row"), *map(_cell, row[1:])) for row in rows)
    whole = element("table", table_head(head), element("tbody", *body), **attributes)
    return element("div", whole, class_="wide", tabindex=0)


def table_head(cells: Iterable[object]) -> Markup:
    """Build the head of a table. A cell without text is not a header."""
    return element("thead", element("tr", *(element("th", c, scope="col") if c else element("td") for c in cells)))


def _cell(content: object) -> Markup:
    is_cell = isinstance(content, Markup) and content.startswith("<td")
    return text(content) if is_cell else element("td", content)


def definition_list(rows: Iterable[tuple[object, object]], **attributes: object) -> Markup:
    """Build a list of terms and their descriptions."""
    return element("dl", *(element("div", element("dt", a), element("dd", b)) for a, b in rows), **attributes)


def join(parts: Iterable[object]) -> Markup:
    """Concatenate parts."""
    return Markup("".join(map(text, parts)))
