"""Results that must not change by a bit: ids and KSD of more than 100 streams and settings, written down once.

``python -m tests.golden.test_golden`` writes results.json again. Do that only when a change of results is intended.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from tests.golden.cases import CASES

RESULTS = Path(__file__).with_name("results.json")

#: With STEINSTREAM_GOLDEN=exact the last bit of estimated cases is compared too: right on the machine that wrote them.
EXACT = os.environ.get("STEINSTREAM_GOLDEN") == "exact"


@pytest.mark.parametrize("name", CASES)
def test_ids_and_ksd_are_the_ones_written_down(name):
    expected = json.loads(RESULTS.read_text(encoding="utf-8"))[name]
    case = CASES[name]
    ids, ksd = case.run()
    assert np.asarray(ids).ravel().tolist() == expected["ids"]
    if case.estimated and not EXACT:
        assert math.isclose(ksd, float.fromhex(expected["ksd"]), rel_tol=1e-9)
    else:
        assert float(ksd).hex() == expected["ksd"]


def test_every_result_has_a_case():
    assert json.loads(RESULTS.read_text(encoding="utf-8")).keys() == CASES.keys()


def write() -> None:
    lines = []
    for name, case in CASES.items():
        ids, ksd = case.run()
        result = {"ksd": float(ksd).hex(), "ids": np.asarray(ids).ravel().tolist()}
        lines.append(f"{json.dumps(name)}: {json.dumps(result, separators=(',', ':'))}")
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write()
