"""The page on networks says what is true: its code runs, and gives what it says it gives."""

import doctest
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

PAGE = Path(__file__).parent.parent.parent / "docs" / "networks.md"


def test_the_page_runs():
    torch.set_num_threads(1)
    result = doctest.testfile(str(PAGE), module_relative=False)
    assert result.attempted > 20 and result.failed == 0
