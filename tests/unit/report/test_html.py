"""Text is escaped once, and markup is not."""

from __future__ import annotations

from steinstream.report.html import Markup, definition_list, element, join, table, text


def test_text_and_attributes_are_escaped_and_markup_is_not():
    assert text("<b>&") == "&lt;b&gt;&amp;" and text(text("<")) == "&lt;"
    assert element("p", "<", Markup("<b>x</b>"), class_="a", data_value='"', id=None) == (
        '<p class="a" data-value="&quot;">&lt;<b>x</b></p>'
    )
    assert join(["<", Markup("<br>")]) == "&lt;<br>"


def test_a_table_has_row_headers_and_accepts_finished_cells():
    result = table(["a", "b"], [("<x>", 1), ("y", element("td", 2, class_="n"))], id="t")
    assert '<th scope="row">&lt;x&gt;</th><td>1</td>' in result and '<td class="n">2</td>' in result
    assert result.count("<td") == 2 and 'id="t"' in result


def test_a_definition_list_has_terms_and_descriptions():
    assert definition_list([("a", "<")], class_="facts") == (
        '<dl class="facts"><div><dt>a</dt><dd>&lt;</dd></div></dl>'
    )
