"""Leave out pages whose code needs a tool that is not installed, and those that tests/test_docs.py runs.

The code of a page runs in a temporary folder, because it may write files.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
collect_ignore = ["_build", "conf.py", "pictures.py", "gallery.md"]
collect_ignore += [str(page.relative_to(HERE)) for page in HERE.rglob("*.md") if "```console" in page.read_text()]
collect_ignore += [] if find_spec("torch") and find_spec("safetensors") else ["networks.md", "quickstart-networks.md"]


@pytest.fixture(autouse=True)
def in_a_temporary_folder(tmp_path, monkeypatch):
    """Run a page in an empty folder."""
    monkeypatch.chdir(tmp_path)
