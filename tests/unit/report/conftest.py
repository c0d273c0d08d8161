"""Fixtures of the tests of the report."""

from __future__ import annotations

import numpy as np
import pytest

import steinstream as ss
from tests.report_chain import NAMES, write_chain

pytest.importorskip("matplotlib")

from steinstream.report.page import build_report


@pytest.fixture(scope="package")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("report")


@pytest.fixture(scope="package")
def chain(folder):
    """A file of two chains with a burn-in and with dangerous names."""
    return write_chain(folder / "chain.npz")


@pytest.fixture(scope="package")
def written(folder, chain):
    """A kept set, read from its file, and the file of its report."""
    with np.load(chain) as arrays:
        ss.thin(arrays["draws"], arrays["scores"], size=120, names=NAMES).save(folder / "kept.npz")
    kept = ss.Kept.load(folder / "kept.npz")
    build_report(kept, chain, file="kept.npz").save(folder / "report.html")
    return kept, folder / "report.html"
