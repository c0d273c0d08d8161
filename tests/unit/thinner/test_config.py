"""ThinConfig: validation, dictionaries, differences; and that no other module lists the settings."""

from __future__ import annotations

import ast
import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steinstream as ss
from steinstream.baselines import selector
from steinstream.baselines.methods import problem_from_arrays, to_kept
from steinstream.errors import InputError
from steinstream.thinner.config import BASELINES, COMMAND_LINE, MERGE, NAMES, ThinConfig, settings_of

ROOT = Path(__file__).parents[3]

settings_of_any_kind = st.fixed_dictionaries(
    {},
    optional={
        "size": st.integers(1, 500),
        "growth": st.sampled_from(["none", "linear", "sqrt", "power:0.5", "constant:5", 7]),
        "budget": st.sampled_from([0.0, 0.1, "decaying", "share:1.0", "constant:0.2"]),
        "rule": st.sampled_from(["paper", "monotone"]),
        "candidates": st.integers(1, 10),
        "passes": st.sampled_from([1, 3, "auto"]),
        "start": st.sampled_from([None, "stream", "sample"]),
        "kernel": st.sampled_from([ss.IMQ(), ss.IMQ(c=2.0, beta=-0.3, linear=0.1), ss.RBF(), ss.RBF(h=2.0), "rbf:h=3"]),
        "preconditioner": st.sampled_from(
            [
                *(None, "auto", "identity", "scales", "streaming", ss.Warmup("scales", 20), ss.Streaming(forget=50)),
                *(ss.Preconditioner.identity(), ss.Preconditioner.scales([1.0, 3.0]), np.eye(3) + 0.1, [1.0, 0.1]),
                ss.Preconditioner(np.array(2.0), np.array([1.0, 2.0])),
            ]
        ),
        "stream_weight": st.sampled_from([0, 0.5, "2", 1.0]),
        "cost_weight": st.sampled_from([0.0, 1, 2.5]),
        "history": st.sampled_from(["log", "all", 10, None]),
        "on_bad": st.sampled_from(["raise", "skip"]),
        "validate_scores": st.booleans(),
        "storage": st.sampled_from(["float64", "float32"]),
    },
)


@given(settings_of_any_kind)
def test_a_dictionary_restores_the_configuration_also_through_json(settings):
    config = ThinConfig(**settings)
    values = config.to_dict()
    assert ThinConfig.from_dict(values) == config
    assert ThinConfig.from_dict(json.loads(json.dumps(values, default=np.ndarray.tolist))) == config
    json.dumps(config.to_dict(arrays=False))


@given(settings_of_any_kind, settings_of_any_kind)
def test_differences_are_empty_exactly_for_equal_configurations(one, other):
    a, b = ThinConfig(**one), ThinConfig(**other)
    assert (a == b) == (not a.differences(b)) == (not b.differences(a))
    assert not a.differences(ThinConfig(**one))
    for name, mine, others in a.differences(b):
        assert name in NAMES and (mine, others) == (a.text(name), b.text(name))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"size": 0}, "size must be a whole number"),
        ({"growth": "cubic"}, "Unknown growth"),
        ({"budget": -1.0}, "must not be negative"),
        ({"rule": "strict"}, "rule must be 'paper' or 'monotone'"),
        ({"candidates": 0}, "candidates must be"),
        ({"passes": "many"}, "passes must be"),
        ({"start": "end"}, "start must be"),
        ({"kernel": "cauchy"}, "Unknown kernel 'cauchy'"),
        ({"kernel": "imq:h=1"}, "Unknown kernel"),
        ({"kernel": 3}, "Unknown kernel"),
        ({"preconditioner": "round"}, "Unknown preconditioner 'round'"),
        ({"preconditioner": [1.0, -1.0]}, "Every scale"),
        ({"stream_weight": -0.1}, "stream_weight must be"),
        ({"stream_weight": "strong"}, "stream_weight must be"),
        ({"cost_weight": True}, "cost_weight must be"),
        ({"history": "some"}, "history must be"),
        ({"on_bad": "fix"}, "on_bad must be"),
        ({"storage": "float16"}, "storage must be"),
    ],
)
def test_an_invalid_setting_is_rejected_with_its_name(wrong, message):
    for make in (ThinConfig, lambda **settings: ss.Thinner(2, **settings)):
        with pytest.raises(InputError, match=message):
            make(**wrong)


def test_an_unknown_setting_is_rejected_with_the_nearest_one():
    for make in (lambda **s: ss.Thinner(2, **s), lambda **s: ss.thin(np.zeros((5, 2)), np.zeros((5, 2)), **s)):
        with pytest.raises(InputError, match=r"Unknown setting 'candidate'. Did you mean candidates\?"):
            make(candidate=3)
    with pytest.raises(InputError, match="config must be a ThinConfig"):
        ss.Thinner(2, {"size": 5})


def test_a_configuration_is_immutable_and_settings_replace_it():
    config = ThinConfig(size=10, rule="monotone")
    with pytest.raises(AttributeError):
        config.size = 20
    thinner = ss.Thinner(2, config, size=30)
    assert thinner.config == ThinConfig(size=30, rule="monotone") and config.size == 10
    assert repr(thinner.config) == "ThinConfig(size=30, rule='monotone')"


def test_a_decaying_budget_and_the_default_growth_follow_a_new_size():
    config = ThinConfig(size=10, budget="decaying").replace(size=40)
    assert str(config.growth_schedule) == "constant:40.0"
    assert config.budget_schedule.growth == config.growth_schedule


def test_functions_are_described_and_must_be_given_again():
    def double(t):
        return 2 * t

    values = ThinConfig(growth=double).to_dict(arrays=False)
    assert "double" in values["growth"]["function"]
    with pytest.raises(InputError, match="growth was a function"):
        ThinConfig.from_dict(values)
    assert ThinConfig.from_dict(values, growth=double).growth is double
    fixed = ThinConfig(preconditioner=[1.0, 2.0]).to_dict(arrays=False)
    with pytest.raises(InputError, match="preconditioner is described only"):
        ThinConfig.from_dict(fixed)


def test_the_kept_set_holds_the_configuration():
    draws = np.random.default_rng(0).normal(size=(300, 2))
    kept = ss.thin(draws, -draws, 20, rule="monotone", kernel="rbf")
    config = ThinConfig.from_dict(kept.settings["config"], preconditioner=kept.preconditioner)
    assert (config.size, config.rule, config.kernel) == (20, "monotone", ss.RBF())
    again = ss.thin(draws, -draws, config=config)
    assert np.array_equal(again.ids, kept.ids) and again.ksd == kept.ksd


@pytest.mark.parametrize("scores", [True, False])
def test_kept_sets_of_other_functions_hold_the_settings_that_these_have(scores):
    draws = np.random.default_rng(0).normal(size=(300, 2))
    given = (draws, -draws if scores else None)
    problem = problem_from_arrays(*given, 20, kernel="rbf", on_bad="skip")
    by_stride = to_kept(problem, "stride", selector("stride")(problem))
    merged = ss.merge([ss.thin(*given, 30), ss.thin(*given, 40)], size=25, stream_weight=0.5)
    expected = {
        ("size", *settings_of(BASELINES)): (by_stride, ThinConfig(size=20, kernel="rbf", on_bad="skip")),
        settings_of(MERGE): (merged, ThinConfig(size=25, stream_weight=0.5)),
    }
    for names, (kept, config) in expected.items():
        assert tuple(kept.settings["config"]) == names
        restored = ThinConfig.from_dict(kept.settings["config"], preconditioner=kept.preconditioner)
        assert restored == config.replace(preconditioner=kept.preconditioner)
        assert kept.settings["kernel"] == repr(kept.kernel)
        assert kept.settings["preconditioner"] == str(kept.preconditioner)
        json.dumps(kept.settings)


def test_every_setting_is_documented():
    described = {
        name.strip()
        for line in (ThinConfig.__doc__ or "").splitlines()
        if line.startswith("    ") and not line.startswith("     ") and " : " in line
        for name in line.split(" : ")[0].split(",")
    }
    assert set(NAMES) == described
    assert all(one.help.endswith((".", "]")) for one in COMMAND_LINE.values())


#: Where three or more settings are named together, and why that is not a list to which a new setting must be added.
NOT_LISTS = {
    "_engine/reference.py: Reference": "the specification of the engine, which has numbers in place of settings",
    "_engine/reference.py: objective_matrix": "arguments of a formula",
    "baselines/methods.py: _thinner": "the settings that define a method",
    "gradient_free.py: ThinConfig": "the arguments of gradient_free_ksd",
    "io/arviz_kept.py: Kept": "fields of a kept set",
    "io/npz.py: Kept": "fields of a kept set",
    "planning.py: Plan": "the result of a plan",
    "planning.py: estimate_kappa": "the step is simulated with these alone",
    "discrepancy/_greedy.py: greedy_order": "arguments of a formula",
    "postprocess/merging.py: PartFacts": "facts about a kept set",
    "postprocess/merging.py: ThinConfig": "the arguments of merge",
    "postprocess/merging.py: cls": "facts about a kept set",
    "postprocess/merging.py: merge": "the signature names the few settings that merging has",
    "result/kept.py: Kept": "fields of a kept set",
}


def test_no_other_module_lists_the_settings():
    """A function, class, call or literal outside of config.py that names three or more settings is a second list."""
    found = set()
    for path in sorted((ROOT / "src" / "steinstream").rglob("*.py")):
        if path.name == "config.py" and path.parent.name == "thinner":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: set[str] = set()
            title = type(node).__name__
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                names, title = {one.arg for one in [*node.args.args, *node.args.kwonlyargs]}, node.name
            elif isinstance(node, ast.ClassDef):
                fields_of = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
                names, title = {one.id for one in fields_of if isinstance(one, ast.Name)}, node.name
            elif isinstance(node, ast.Call):
                names = {one.arg for one in node.keywords if one.arg}
                names |= {str(one.value) for one in node.args if isinstance(one, ast.Constant)}
                title = ast.unparse(node.func)
            elif isinstance(node, ast.Tuple | ast.List | ast.Set | ast.Dict):
                items = node.keys if isinstance(node, ast.Dict) else node.elts
                names = {one.value for one in items if isinstance(one, ast.Constant) and isinstance(one.value, str)}
            if len(names & set(NAMES)) >= 3:
                found.add(f"{path.relative_to(ROOT / 'src' / 'steinstream').as_posix()}: {title}")
    assert found == set(NOT_LISTS)


def test_the_names_are_the_fields():
    assert tuple(one.name for one in fields(ThinConfig)) == NAMES
