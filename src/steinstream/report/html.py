"""A few lines of HTML. Whatever text is given is escaped; what is markup already says so by its type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> Markup:
    """Anything as HTML: markup as it is, all else escaped.

    >>> text("<b>"), text(Markup("<b>"))
    ('&lt;b&gt;', '<b>')
    """
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def element(tag: str, *content: object, **attributes: object) -> Markup:
    """One element; ``class_`` is class, ``data_value`` is data-value.

    >>> element("p", "a < b", class_="note")
    '<p class="note">a &lt; b</p>'
    """
    named = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items() if value is not None}
    told = "".join(f' {name}="{escape(str(value))}"' for name, value in named.items())
    return Markup(f"<{tag}{told}>{''.join(map(text, content))}</{tag}>")


def table(head: Sequence[object], rows: Iterable[Sequence[object]], **attributes: object) -> Markup:
    """A table that scrolls by itself where it is wider than the page. Its first column names the rows."""
    top = element("thead", element("tr", *(element("th", cell, scope="col") for cell in head)))
    body = (element("tr", element("th", row[0], scope="row"), *map(_cell, row[1:])) for row in rows)
    return element("div", element("table", top, element("tbody", *body), **attributes), class_="wide", tabindex=0)


def _cell(content: object) -> Markup:
    done = isinstance(content, Markup) and content.startswith("<td")
    return text(content) if done else element("td", content)


def pairs(rows: Iterable[tuple[object, object]], **attributes: object) -> Markup:
    """A list of terms and what they are."""
    return element("dl", *(element("div", element("dt", a), element("dd", b)) for a, b in rows), **attributes)


def join(parts: Iterable[object]) -> Markup:
    """One after another."""
    return Markup("".join(map(text, parts)))
