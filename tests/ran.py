"""Say plainly which tests ran, in which environment, and which did not, and why: python tests/ran.py NAME=FILE...

The files are what ``pytest --junitxml=FILE`` wrote. A test counts as left out if no environment ran it.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from xml.etree import ElementTree


def main(arguments: list[str]) -> None:
    ran: set[str] = set()
    left: dict[str, tuple[str, str, bool]] = {}  # test, or a whole file -> the file, why, and whether it is a whole one
    print("\nRan")
    for environment, _, file in (argument.partition("=") for argument in arguments):
        passed = 0
        for case in ElementTree.parse(file).iter("testcase"):
            where, name = case.get("classname") or case.get("name", ""), case.get("name", "")
            skipped = case.find("skipped")
            if skipped is None:
                passed += 1
                ran |= {where, f"{where}.{name}"}
            else:
                whole = not case.get("classname")
                left[where if whole else f"{where}.{name}"] = where, reason(skipped, whole), whole
        print(f"  {environment}: {passed} tests")
    missing = Counter(why for test, why in left.items() if test not in ran)
    print("Left out" if missing else "Left out: none")
    for (where, why, whole), count in sorted(missing.items()):
        print(f"  {where.replace('.', '/')}.py{'' if whole else f', {count} of its tests'}: {why}")


def reason(skipped: ElementTree.Element, whole: bool) -> str:
    """Why a test was skipped; of a whole file, pytest gives a tuple in the text."""
    why = str(ast.literal_eval((skipped.text or "").strip())[2]) if whole else skipped.get("message", "")
    return why.removeprefix("Skipped: ")


if __name__ == "__main__":
    main(sys.argv[1:])
