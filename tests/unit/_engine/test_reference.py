"""Every compiled function that states a formula or a rule names its counterpart in the specification."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import steinstream
from steinstream import kernels
from steinstream._engine import reference

ENGINE = Path(steinstream.__file__).parent / "_engine"
MODULES = (
    *("argmax", "base_row", "baseline_loops", "candidates", "compiled_kernel", "density_ratio", "float32"),
    *("kernel_pair", "kernel_row", "local_search", "merging", "objective", "online_stats", "pairwise", "penalties"),
    *("step_rule", "stream_summary", "thinning", "updates"),
)
COMPILERS = {"jit", "bare", "called_late", "inlined", "inlined_with_arrays", "register_jitable", "intrinsic"}
BOOKKEEPING = "Storage bookkeeping."


def is_compiled(function):
    """Whether a decorator compiles this function."""
    called = [d.func if isinstance(d, ast.Call) else d for d in function.decorator_list]
    return any(isinstance(name, ast.Name) and name.id in COMPILERS for name in called)


def compiled_functions():
    """Module, name and docstring of each compiled function."""
    for module in MODULES:
        for node in ast.walk(ast.parse((ENGINE / f"{module}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and is_compiled(node):
                yield pytest.param(ast.get_docstring(node) or "", id=f"{module}.{node.name}")


def counterparts(docstring):
    """Names after "Reference:", up to the end of the sentence."""
    line = re.search(r"^Reference: (.*)$", docstring, flags=re.MULTILINE)
    return re.findall(r"`((?:reference|kernels)\.[\w.]+)`", line.group(1)) if line else []


@pytest.mark.parametrize("docstring", [*compiled_functions()])
def test_a_compiled_function_names_its_counterpart(docstring):
    names = counterparts(docstring)
    assert bool(names) != (BOOKKEEPING in docstring)
    for name in names:
        found = {"reference": reference, "kernels": kernels}
        for part in name.split("."):
            found = found[part] if isinstance(found, dict) else getattr(found, part)


def test_every_module_with_compiled_functions_is_checked():
    """But for modules without formulas of their own: compilation, vectors, text, solvers that NumPy has."""
    others = {path.stem for path in ENGINE.glob("*.py")} - {*MODULES}
    assert others == {
        *("__init__", "by_reference", "code_cache", "compile_clock", "jit", "late_calls", "simd"),
        *("double_double", "state", "linalg", "csv_parser", "reference"),
    }


def test_no_module_imports_the_specification():
    package = ENGINE.parent
    users = [path for path in package.rglob("*.py") if re.search(r"import.*\breference\b", path.read_text("utf-8"))]
    assert users == []
