"""Docstrings follow numpydoc: one entry per parameter, and public objects list all of them.

Public are the functions, classes and methods that the pages in ``docs/reference`` show.
"""

from __future__ import annotations

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import pytest

import steinstream as ss
from tests.pages import ROOT

SOURCE = Path(ss.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
ENTRIES = ("Parameters", "Attributes", "Yields", "Returns")
Definition = ast.FunctionDef | ast.ClassDef


def heads(text: str, section: str = "Parameters") -> list[str] | None:
    """Return the first lines of the entries in a section of a docstring, without types, or None."""
    found = re.search(rf"^{section}\n-+\n(.*?)(?=^\w[\w ]*\n-{{3,}}|\Z)", inspect.cleandoc(text), re.M | re.S)
    if found is None:
        return None
    return [line.partition(" : ")[0].strip() for line in found.group(1).splitlines() if line and line[0] != " "]


def text_of(node: ast.Module | Definition) -> str:
    """Return the docstring of a definition."""
    return ast.get_docstring(node, clean=True) or ""


def functions(tree: ast.Module) -> list[tuple[str, Definition, ast.FunctionDef]]:
    """Return name, owner of the docstring and signature of each function; a class has that of its constructor."""
    found: list[tuple[str, Definition, ast.FunctionDef]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            found.append((node.name, node, node))
        elif isinstance(node, ast.ClassDef):
            found += [(node.name, node, init) for init in methods(node) if init.name == "__init__"]
    return found


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Return the functions in the body of a class."""
    return [each for each in node.body if isinstance(each, ast.FunctionDef)]


def parameters(node: ast.FunctionDef) -> list[str]:
    """Return the names of the parameters, with stars."""
    given = node.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    names += [f"*{given.vararg.arg}"] if given.vararg else []
    names += [f"**{given.kwarg.arg}"] if given.kwarg else []
    return [name for name in names if name not in ("self", "cls")]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_section_of_parameters_lists_them_all_and_no_others(path):
    wrong = {}
    for name, owner, signature in functions(ast.parse(path.read_text(encoding="utf-8"))):
        listed = heads(text_of(owner))
        if listed is not None and sorted(listed) != sorted(parameters(signature)):
            wrong[name] = sorted({*listed} ^ {*parameters(signature)})
    assert not wrong


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_each_entry_describes_one_name(path):
    grouped = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, Definition):
            entries = [head for section in ENTRIES for head in heads(text_of(node), section) or []]
            grouped += [f"{node.name}: {head}" for head in entries if re.fullmatch(r"\**\w+(, \**\w+)+", head)]
    assert not grouped


def defined() -> dict[str, Definition]:
    """Return the module-level functions and classes of the package by their full names."""
    found = {}
    for path in FILES:
        parts = [part for part in path.relative_to(SOURCE.parent).with_suffix("").parts if part != "__init__"]
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, Definition):
                found[".".join([*parts, node.name])] = node
    return found


DEFINED = defined()


class Shown(NamedTuple):
    """An object on a page of the reference."""

    name: str
    excluded: frozenset[str]


def shown() -> list[Shown]:
    """Return the functions and classes of the reference pages."""
    found = []
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        module = ""
        directives = re.finditer(r"^\.\. (\w+):: ([\w.]+).*\n((?:   :.*\n)*)", page.read_text(encoding="utf-8"), re.M)
        for kind, name, options in (each.groups() for each in directives):
            if kind == "currentmodule":
                module = name
            excluded = frozenset("".join(re.findall(r":exclude-members: (.*)", options)).split(", "))
            if kind == "automodule" and ":no-members:" not in options:
                names = (full for full in DEFINED if full.rpartition(".")[0] == name and "._" not in full)
                found += [Shown(full, excluded) for full in names if full.rpartition(".")[2] not in excluded]
            if kind in ("autofunction", "autoclass"):
                found.append(Shown(name if name.startswith("steinstream.") else f"{module}.{name}", excluded))
    return found


def definition(name: str) -> Definition | None:
    """Return the definition of a public name; None if it is made when the module is imported."""
    if name in DEFINED:
        return DEFINED[name]
    module, _, last = name.rpartition(".")
    if module == "steinstream":
        return DEFINED[f"{getattr(ss, last).__module__}.{last}"]
    base = SOURCE.parent.joinpath(*module.split("."))
    source = (base / "__init__.py" if base.is_dir() else base.with_suffix(".py")).read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)):  # the module imports the name from another one
        if isinstance(node, ast.ImportFrom) and last in [each.name for each in node.names]:
            return DEFINED.get(f"{node.module}.{last}")
    below = [node for full, node in DEFINED.items() if full.startswith(f"{module}.") and full.endswith(f".{last}")]
    return below[0] if len(below) == 1 else None


def raises(function: ast.FunctionDef) -> bool:
    """Return whether the body of a function, without functions inside of it, raises an error of its own."""
    waiting: list[ast.AST] = [*function.body]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Raise) and node.exc is not None:
            return True
        if not isinstance(node, Definition | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return False


def documentation(node: ast.ClassDef, method: ast.FunctionDef) -> ast.FunctionDef:
    """Return a method, or the method of a base class of the package whose docstring it inherits."""
    if not text_of(method):
        bases = {ast.unparse(base).rpartition(".")[2] for base in node.bases}
        for full, base in DEFINED.items():
            if full.rpartition(".")[2] in bases and isinstance(base, ast.ClassDef):
                for each in methods(base):
                    if each.name == method.name:
                        return documentation(base, each)
    return method


def documented(label: str, owner: Definition, signature: ast.FunctionDef) -> list[str]:
    """Return what a docstring does not have: parameters, a section Returns, a section Raises."""
    listed = heads(text_of(owner)) or []
    missing = [f"{label}: {name}" for name in parameters(signature) if name not in listed]
    returns = ast.unparse(signature.returns) if signature.returns else "None"
    decorators = {ast.unparse(each).rpartition(".")[2] for each in signature.decorator_list}
    described = heads(text_of(owner), "Returns") or heads(text_of(owner), "Yields")
    if returns != "None" and owner is signature and not described and not decorators & {"property", "cached_property"}:
        missing.append(f"{label}: Returns")
    if raises(signature) and not heads(text_of(owner), "Raises"):
        missing.append(f"{label}: Raises")
    return missing


@pytest.mark.parametrize("public", shown(), ids=lambda public: public.name)
def test_public_objects_list_every_parameter_what_they_return_and_raise(public):
    node = definition(public.name)
    if node is None:
        module, _, last = public.name.rpartition(".")
        made = getattr(import_module(module), last)
        named = heads(inspect.getdoc(made) or "") or []
        assert [name.lstrip("*") for name in named] == [*inspect.signature(made).parameters]
        return
    assert text_of(node), "no docstring"
    if isinstance(node, ast.FunctionDef):
        assert not documented(node.name, node, node)
        return
    listed = {*(heads(text_of(node)) or []), *(heads(text_of(node), "Attributes") or [])}
    missing = []
    for each, following in zip(node.body, [*node.body[1:], None], strict=True):
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            described = isinstance(following, ast.Expr) or each.target.id in listed or each.target.id[0] == "_"
            missing += [] if described else [f"{node.name}: {each.target.id}"]
    abstract = {ast.unparse(base) for base in node.bases} & {"ABC", "Protocol"}
    for method in methods(node):
        setter = any(ast.unparse(each).endswith(".setter") for each in method.decorator_list)
        if method.name == "__init__" and not abstract:
            missing += documented(node.name, node, method)
        elif method.name in ("__init__", "__post_init__"):
            missing += [] if not raises(method) or heads(text_of(node), "Raises") else [f"{node.name}: Raises"]
        elif method.name[0] != "_" and method.name not in public.excluded and not setter:
            owner = documentation(node, method)
            assert text_of(owner), f"{method.name}: no docstring"
            missing += documented(f"{node.name}.{method.name}", owner, method)
    assert not missing


QUESTION = re.compile(r"(What|How|Where|Which)\b")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_docstring_starts_with_an_imperative_or_a_noun(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [each for each in ast.walk(tree) if isinstance(each, ast.Module | Definition)]
    wrong = [text_of(each).partition("\n")[0] for each in found if QUESTION.match(text_of(each))]
    assert not wrong


def test_an_error_without_a_section_is_found():
    text = 'def f(x):\n    """Do.\n\n    Parameters\n    ----------\n    x : int\n        X.\n\n    """\n    raise E(x)'
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef) and documented("f", function, function) == ["f: Raises"]
    (function,) = ast.parse(text.replace("raise E(x)", "def g():\n        raise E(x)")).body
    assert isinstance(function, ast.FunctionDef) and documented("f", function, function) == []


def test_the_docstring_of_a_method_may_be_that_of_a_base_class_of_the_package():
    (gaussian,) = ast.parse("class Own(Target):\n    def score(self, position): ...\n    def other(self): ...").body
    assert isinstance(gaussian, ast.ClassDef)
    score, other = (documentation(gaussian, method) for method in methods(gaussian))
    assert not documented("score", score, methods(gaussian)[0]) and not text_of(other)
