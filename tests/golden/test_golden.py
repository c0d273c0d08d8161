"""Results that must not change by a bit: ids and KSD of the streams and settings in cases.py, written down once.

``python -m tests.golden.test_golden NAME ...`` writes the results of these cases again, or of all cases without a name.
Do that only when a change of results is intended.
"""

from __future__ import annotations

import json
import math
import os
import sys
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


def write(names: list[str]) -> None:
    results = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name in names or CASES:
        ids, ksd = CASES[name].run()
        results[name] = {"ksd": float(ksd).hex(), "ids": np.asarray(ids).ravel().tolist()}
    lines = [f"{json.dumps(name)}: {json.dumps(results[name], separators=(',', ':'))}" for name in CASES]
    RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    write(sys.argv[1:])
