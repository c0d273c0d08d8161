"""Structure of the package: no import cycles, no use of private names of other modules, one name for one class.

Run by ``make lint``. The import contract in ``pyproject.toml`` compares layers; these tests compare modules, and count
imports inside functions. Excluded are ``if TYPE_CHECKING:`` blocks and lines marked with ``# facade``, where a method
calls a higher layer on purpose.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.pages import ROOT

SOURCE = ROOT / "src" / "steinstream"
NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make"}  # public in spite of their names


class Module(NamedTuple):
    """A module of a package."""

    name: str
    path: Path
    tree: ast.Module
    lines: list[str]

    @property
    def package(self) -> list[str]:
        """The parts of the name of the package that relative imports start from."""
        parts = self.name.split(".")
        return parts if self.path.name == "__init__.py" else parts[:-1]


@cache
def modules(root: Path) -> dict[str, Module]:
    """Return the modules below a folder by their full names."""
    found = {}
    for path in sorted(root.rglob("*.py")):
        parts = [root.name, *path.relative_to(root).with_suffix("").parts]
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, path, ast.parse(text), text.splitlines())
    return found


def statements(module: Module) -> Iterator[ast.Import | ast.ImportFrom]:
    """Yield the import statements that run, without those marked with ``# facade``."""
    waiting: list[ast.AST] = [module.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).rpartition(".")[2] == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            written = module.lines[node.lineno - 1 : node.end_lineno]
            if not any("# facade" in line for line in written):
                yield node


def source_of(module: Module, node: ast.ImportFrom) -> str:
    """Return the full name of the module in ``from module import ...``."""
    start = module.package[: len(module.package) - node.level + 1] if node.level else []
    return ".".join([*start, *([node.module] if node.module else [])])


def imports(root: Path) -> dict[str, set[str]]:
    """Return, for each module, the modules of the package that it imports; the root package itself is left out."""
    known = modules(root)
    graph: dict[str, set[str]] = {name: set() for name in known if name != root.name}
    for name in graph:
        for node in statements(known[name]):
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            else:
                source = source_of(known[name], node)
                inner = [f"{source}.{alias.name}" for alias in node.names]
                targets = [each if each in known else source for each in inner]
            graph[name] |= {target for target in targets if target in graph and target != name}
    return graph


def import_cycle(root: Path) -> list[str]:
    """Return the modules of one cycle of imports, in order; an empty list if there is none."""
    try:
        TopologicalSorter(imports(root)).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def is_private(name: str) -> bool:
    """Return whether a name starts with one underscore."""
    return re.match(r"_[A-Za-z]", name) is not None and name not in NAMED_TUPLE


def own_names(tree: ast.Module) -> set[str]:
    """Return the names that a module defines: functions, classes, fields of classes, attributes of ``self``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self":
            names.add(node.attr)
    return names


def foreign_names(module: Module) -> set[str]:
    """Return the names under which a module imports modules that are not in its own package."""
    found = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            root = module.name.partition(".")[0]
            found |= {alias.asname or alias.name for alias in node.names if alias.name.partition(".")[0] != root}
    return found


def private_uses(root: Path) -> list[str]:
    """Return the places where a module uses a private attribute or name that another module of the package defines."""
    found = []
    defined = set().union(*(own_names(module.tree) for module in modules(root).values()))
    for name, module in modules(root).items():
        own, foreign = own_names(module.tree), foreign_names(module)
        for node in ast.walk(module.tree):
            used = ""
            if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
                owner = ast.unparse(node.value)
                if owner not in ("self", "cls", "super()") and owner not in foreign:
                    used = ast.unparse(node)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr") and len(node.args) > 1:
                attribute = getattr(node.args[1], "value", "")
                if attribute in defined - own and is_private(attribute):  # the others belong to other libraries
                    used = ast.unparse(node)
            elif isinstance(node, ast.ImportFrom) and source_of(module, node).partition(".")[0] == root.name:
                source = source_of(module, node)
                inner = [alias.name for alias in node.names if is_private(alias.name)]
                used = ", ".join(each for each in inner if f"{source}.{each}" not in modules(root))
            if used:
                found.append(f"{name}, line {node.lineno}: {used}")
    return found


def uses_of_thinner_state(root: Path) -> list[str]:
    """Return the places outside of the package ``thinner`` that use the state of a thinner."""
    found = []
    for name, module in modules(root).items():
        for node in ast.walk(module.tree) if f"{root.name}.thinner" not in name else ():
            if isinstance(node, ast.Attribute) and node.attr == "state":
                of_thinner = ast.unparse(node.value).rpartition(".")[2] == "thinner"
            else:
                of_thinner = isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith(".state")
            if of_thinner and isinstance(node, ast.Attribute):
                found.append(f"{name}, line {node.lineno}: {ast.unparse(node)}")
    return found


def shared_class_names(root: Path) -> dict[str, list[str]]:
    """Return the public classes that have the same name, with their modules."""
    where = defaultdict(list)
    for name, module in modules(root).items():
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not is_private(node.name):
                where[node.name].append(name)
    return {name: places for name, places in where.items() if len(places) > 1}


def test_the_imports_of_the_package_have_no_cycle():
    assert not import_cycle(SOURCE)


def test_no_module_uses_private_names_of_another_one():
    assert not private_uses(SOURCE)


def test_no_module_outside_of_the_thinner_uses_its_state():
    assert not uses_of_thinner_state(SOURCE)


def test_public_classes_have_different_names():
    assert not shared_class_names(SOURCE)


def test_the_package_has_more_than_a_few_imports():
    graph = imports(SOURCE)
    assert "steinstream.thinner.config" in graph["steinstream.thinner"]
    assert sum(map(len, graph.values())) > len(graph)


@pytest.fixture
def package(tmp_path):
    """Write modules, given as text by path, and return the folder of the package."""
    root = tmp_path / "made"

    def write(**texts: str) -> Path:
        for name, text in texts.items():
            path = root.joinpath(*name.split("__")).with_suffix(".py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return root

    return write


@pytest.mark.parametrize(
    "back",
    [
        "import made.first",
        "from made.first import thing",
        "from made import first",
        "from . import first",
        "from .first import thing",
        "def late():\n    from made.first import thing\n    return thing",
        "if TYPE_CHECKING:\n    pass\nelse:\n    import made.first",
    ],
)
def test_a_cycle_is_found(package, back):
    root = package(first="from made.second import other", second=back)
    assert {*import_cycle(root)} == {"made.first", "made.second"}


@pytest.mark.parametrize(
    "back",
    [
        "if TYPE_CHECKING:\n    import made.first",
        "if typing.TYPE_CHECKING:\n    from made.first import thing",
        "def save(self):\n    from made.first import thing  # facade\n    return thing",
        "import first",
    ],
)
def test_imports_for_types_and_facades_are_no_cycle(package, back):
    assert not import_cycle(package(first="from made.second import other", second=back))


def test_a_cycle_of_three_modules_in_a_folder_is_found(package):
    root = package(folder__a="from .b import x", folder__b="from made.folder.c import x", folder__c="from . import a")
    assert {*import_cycle(root)} == {"made.folder.a", "made.folder.b", "made.folder.c"}


@pytest.mark.parametrize(
    "use",
    ["thing._hidden", "getattr(thing, '_hidden')", "setattr(thing, '_hidden', 1)", "from made.other import _hidden"],
)
def test_the_use_of_a_private_name_is_found(package, use):
    assert len(private_uses(package(first=use, other="def _hidden():\n    pass"))) == 1


@pytest.mark.parametrize("use", ["thinner.state.seen", "self.thinner.state = 1", "f(thinner.state)", "run.state.seen"])
def test_the_use_of_the_state_of_a_thinner_is_found(package, use):
    root = package(first=use, thinner__run=use)
    assert {found.partition(",")[0] for found in uses_of_thinner_state(root)} == {"made.first"}


@pytest.mark.parametrize(
    "use",
    [
        "class A:\n    _mine = 1\n    def same(self, other):\n        return other._mine",
        "class A(Base):\n    def get(self):\n        return self._of_the_base",
        "import os\nos._exit(1)",
        "tuple_._replace(a=1)",
        "getattr(of_another_library, '_hidden', None)",
        "from made import _other",
    ],
)
def test_own_private_names_and_private_modules_may_be_used(package, use):
    assert not private_uses(package(first=use, _other=""))


def test_classes_with_the_same_name_are_found(package):
    root = package(first="class Same: ...\nclass _Private: ...", second="class Same: ...\nclass _Private: ...")
    assert shared_class_names(root) == {"Same": ["made.first", "made.second"]}
