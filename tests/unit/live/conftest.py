"""Fixtures of the tests of the dashboard."""

from __future__ import annotations

import pytest

from tests.live import update_often


@pytest.fixture(autouse=True)
def _update_often(monkeypatch):
    update_often(monkeypatch)
