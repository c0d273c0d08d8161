"""Plain technical English: words and phrases that are avoided in the docs, the README and the source.

Run by ``make lint``. Code blocks of pages are not read.
"""

from __future__ import annotations

import re

from tests.pages import ROOT, pages, text_of

AVOID = {  # pattern: what to write instead
    r"anew": "again",
    r"so (?:many|much)": "name the number",
    r"(?:is|are|was|were) told": "is reported",
    r"tells": "reports, shows",
    r"lends?": "supplies",
    r"whoever": "the caller",
    r"at hand": "available",
    r"what is kept": "the kept draws",
    r"what (?:KSDT|it|a thinner|the thinner) keeps": "the kept draws",
    r"beside": "next to",
    r"(?<!there )(?:is|are) no(?! (?:longer|more|better|worse|smaller|larger|fewer))": "is not a; there are no",
    r"of late": "recently",
    r"as a rule": "usually",
    r"the house": "use a word of the field",
    r"the door": "validation",
    r"alike": "similar, in the same way",
    r"honest(?:y|ly)?": "debiased, exact",
    r"blame[ds]?": "attribute",
    r"for ever": "permanently",
    r"(?<=, )say(?=,)": "for example",
    r"makes? up for": "corrects, compensates",
    r"one hopes": "assuming that",
    r"at any cost": "state what is exceeded",
    r"pays? for": "allows",
    r"turned away": "rejected",
    r"(?:sits?|sitting) out": "is not measured",
    r"goes away": "ends, is lost",
    r"keeps what": "keeps the draws that",
}
FILES = [path for path in (*pages(), *sorted((ROOT / "src").rglob("*.py"))) if path.name != "summary.md"]


def prose(path) -> str:
    """Return the text of a page without code, or the source of a module."""
    if path.suffix == ".py":
        return path.read_text()
    blank = re.compile(r"^```.*?^```|^    .*?$", flags=re.DOTALL | re.MULTILINE)
    text = blank.sub(lambda code: "\n" * code[0].count("\n"), text_of(path))
    return re.sub(r"`[^`\n]*`|\]\([^)\n]*\)", "", text)


def test_no_word_of_the_list_is_used():
    wrong = []
    for path in FILES:
        name, text = str(path.relative_to(ROOT)), prose(path)
        for pattern, better in AVOID.items():
            for found in re.finditer(rf"\b(?:{pattern})\b", text, flags=re.IGNORECASE):
                line = text.count("\n", 0, found.start()) + 1
                wrong.append(f"{name}, line {line}: {found[0]!r}; write: {better}")
    assert not wrong, "\n".join(wrong)
