"""Every compiled function that states a formula or a rule names its counterpart in the specification."""

from __future__ import annotations

import ast
import builtins
import re
from importlib import import_module
from pathlib import Path

import pytest

import steinstream
from steinstream import kernels
from steinstream._engine import reference

ENGINE = Path(steinstream.__file__).parent / "_engine"
MODULES = (
    *("argmax", "base_row", "baseline_loops", "candidates", "compiled_kernel", "csv_parser"),
    *("double_double", "float32", "kernel_pair", "kernel_row", "linalg", "local_search", "merging", "objective"),
    *("online_stats", "pairwise", "penalties", "simd", "step_rule", "stream_summary", "thinning", "updates"),
)
COMPILERS = {"jit", "translated", "called_late", "inlined", "inlined_with_arrays", "register_jitable", "intrinsic"}
COMPILERS |= {"shared", "bare"}
BOOKKEEPING = "Storage bookkeeping."


def is_compiled(function):
    """Whether a decorator compiles this function."""
    called = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(isinstance(name, ast.Name) and name.id in COMPILERS for name in called)


def compiled_functions():
    """Name with module, and docstring, of each compiled function."""
    for module in MODULES:
        for node in ast.walk(ast.parse((ENGINE / f"{module}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and is_compiled(node):
                yield f"{module}.{node.name}", ast.get_docstring(node) or ""


def counterparts(docstring):
    """Names after "Reference:", up to the end of the sentence."""
    line = re.search(r"\bReference: (.*)$", docstring, flags=re.MULTILINE)
    return re.findall(r"`([\w.]+)`", line.group(1)) if line else []


def resolved(name):
    """Return the object with this name: in the specification, in kernels, in NumPy or in the standard library."""
    first, *parts = name.split(".")
    own = {"reference": reference, "kernels": kernels}
    found = own.get(first) or getattr(builtins, first, None) or import_module(first)
    for part in parts:
        found = getattr(found, part)
    if not (callable(found) or isinstance(found, property) or found is kernels.PROFILES):
        raise TypeError(f"{name} is a value, not a function")
    return found


def test_a_compiled_function_names_its_counterpart():
    functions = [*compiled_functions()]
    assert len(functions) > 100
    for function, docstring in functions:
        names = counterparts(docstring)
        assert bool(names) != (BOOKKEEPING in docstring), function
        for name in names:
            resolved(name)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("reference.Reference.stream_weight", TypeError),
        ("reference.Reference.keyz", AttributeError),
        ("no_module.function", ImportError),
    ],
)
def test_a_wrong_name_is_not_resolved(name, error):
    with pytest.raises(error):
        resolved(name)


def test_every_module_with_compiled_functions_is_checked():
    """But for modules without formulas of their own: compilation and storage."""
    others = {path.stem for path in ENGINE.glob("*.py")} - {*MODULES}
    assert others == {
        *("__init__", "by_reference", "code_cache", "compile_clock", "jit", "late_calls"),
        *("translation", "translated_values", "state", "reference"),
    }


def test_no_module_imports_the_specification():
    package = ENGINE.parent
    users = [path for path in package.rglob("*.py") if re.search(r"import.*\breference\b", path.read_text("utf-8"))]
    assert users == []
