"""The code on the page docs/networks.md runs and gives the results that the page shows."""

import doctest
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

PAGE = Path(__file__).resolve().parents[3] / "docs" / "networks.md"


def test_the_page_runs():
    torch.set_num_threads(1)
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 20 and result.failed == 0
