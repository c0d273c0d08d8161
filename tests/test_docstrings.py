"""Docstrings follow numpydoc: a section of parameters lists exactly the parameters, and public objects have one."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import steinstream as ss

SOURCE = Path(ss.__file__).parent
FILES = sorted(path for path in SOURCE.rglob("*.py") if "_engine" not in path.parts)


def documented(text: str, section: str = "Parameters") -> set[str] | None:
    """Return the names in a section of a docstring; None if there is no such section."""
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}|\Z)", inspect.cleandoc(text), re.M | re.S)
    if found is None:
        return None
    heads = [line.partition(" : ")[0] for line in found.group(1).splitlines() if line and not line.startswith(" ")]
    return {name.strip() for head in heads for name in head.split(",")}


def functions(tree: ast.Module) -> list[tuple[str, ast.FunctionDef | ast.ClassDef, ast.FunctionDef]]:
    """Return name, owner of the docstring and signature of each function; a class has that of its constructor."""
    found: list[tuple[str, ast.FunctionDef | ast.ClassDef, ast.FunctionDef]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.append((node.name, node, node))
        elif isinstance(node, ast.ClassDef):
            inits = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
            found += [(node.name, node, init) for init in inits]
    return found


def parameters(node: ast.FunctionDef) -> set[str]:
    """Return the names of the parameters, with stars."""
    given = node.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [f"*{given.vararg.arg}"] if given.vararg else []
    names += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return {name for name in names if name not in ("self", "cls")}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_section_of_parameters_lists_them_all_and_no_others(path):
    wrong = {}
    for name, owner, signature in functions(ast.parse(path.read_text(encoding="utf-8"))):
        listed = documented(ast.get_docstring(owner, clean=True) or "")
        if listed is not None and listed != parameters(signature):
            wrong[name] = sorted(listed ^ parameters(signature))
    assert not wrong


def public_objects() -> list[str]:
    """Return the names of the public classes and functions, and of the public methods of the classes."""
    names = []
    for name in ss.__all__:
        value = getattr(ss, name)
        if inspect.isfunction(value):
            names.append(name)
        elif inspect.isclass(value) and not issubclass(value, Warning | Exception):
            names += [
                f"{name}.{each}"
                for each, method in vars(value).items()
                if inspect.isfunction(method) and each[0] != "_"
            ]
    return names


@pytest.mark.parametrize("name", public_objects())
def test_public_functions_with_several_parameters_describe_each_of_them(name):
    owner, _, method = name.partition(".")
    value = getattr(getattr(ss, owner), method) if method else getattr(ss, owner)
    taken = [each for each in inspect.signature(value).parameters if each != "self"]
    text = inspect.getdoc(value) or ""
    assert text, "no docstring"
    if len(taken) > 1:
        assert documented(text), "no section of parameters"
