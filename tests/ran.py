"""Report which tests ran, in which environment, and which did not, and why.

``python tests/ran.py NAME=FILE...`` prints a summary of files that ``pytest --junitxml=FILE`` wrote. A test counts as
left out if no environment ran it. ``python tests/ran.py --left-out FILE`` prints the skipped tests of one file as
arguments for pytest, one per line.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(arguments: list[str]) -> None:
    if arguments[0] == "--left-out":
        print("\n".join(left_out(arguments[1])))
        return
    ran: set[str] = set()
    left: dict[str, tuple[str, str, bool]] = {}  # test or module -> module, reason, whether it is a whole module
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


def left_out(file: str) -> list[str]:
    """Return the node ids of skipped tests, and the paths of skipped modules and packages."""
    found = []
    for case in ElementTree.parse(file).iter("testcase"):
        if case.find("skipped") is None:
            continue
        module = case.get("classname") or case.get("name", "")
        folder = Path(*module.split("."))
        path = folder if folder.is_dir() else folder.with_suffix(".py")
        found.append(path.as_posix() if not case.get("classname") else f"{path.as_posix()}::{case.get('name')}")
    return sorted(set(found))


def reason(skipped: ElementTree.Element, whole: bool) -> str:
    """Return why a test was skipped; for a whole module, pytest writes a tuple into the text."""
    why = str(ast.literal_eval((skipped.text or "").strip())[2]) if whole else skipped.get("message", "")
    return why.removeprefix("Skipped: ")


if __name__ == "__main__":
    main(sys.argv[1:])
