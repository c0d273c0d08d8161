"""The examples in the docstrings of the experiments run."""

from __future__ import annotations

import doctest
import pkgutil
from importlib import import_module
from importlib.util import find_spec

import pytest

import experiments

REQUIRES_TORCH = tuple(f"experiments.network_models.{name}" for name in ("exact_posterior", "models", "training"))
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(experiments.__path__, "experiments.")
    if not module.name.endswith("__main__")
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_run(name):
    if name in REQUIRES_TORCH and find_spec("torch") is None:
        pytest.skip("torch is not installed")
    assert doctest.testmod(import_module(name)).failed == 0
