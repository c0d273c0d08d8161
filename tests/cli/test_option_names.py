"""Options are generated from the settings, and every option has the name of the Python parameter it stands for."""

from __future__ import annotations

import inspect
import re
from typing import get_args

import click
import pytest

import steinstream as ss
from steinstream.baselines import comparison
from steinstream.cli import commands, help
from steinstream.thinner import config
from steinstream.thinner.config import COMMAND_LINE, ThinConfig


def options(name):
    """Return the options of a command by their Python names."""
    command = commands.commands[name]
    found = command.get_params(click.Context(command))
    return {option.name: option for option in found if isinstance(option, help.Option)}


def parameters(function):
    found = inspect.signature(function).parameters
    return found.keys() | (set(config.NAMES) if "settings" in found else set())


def test_thin_offers_exactly_the_settings_that_the_configuration_offers():
    assert {name for name in options("thin") if name in config.NAMES} == COMMAND_LINE.keys()
    assert {name for name in options("follow") if name in config.NAMES} == COMMAND_LINE.keys() - {"passes", "start"}


@pytest.mark.parametrize("name", COMMAND_LINE)
def test_an_option_of_a_setting_has_its_name_help_and_section(name):
    option, offered = options("thin")[name], COMMAND_LINE[name]
    assert option.opts == [f"--{name.replace('_', '-')}"]
    assert option.help.startswith(offered.help) and option.section == help.SECTIONS[offered.section]
    if isinstance(getattr(ThinConfig(), name), bool):
        assert option.secondary_opts == [f"--no-{name.replace('_', '-')}"]
    if offered.choices:
        assert tuple(option.type.choices) == offered.choices
    words = [item.value for item in option.shell_complete(click.Context(commands), "")]
    assert words == list(offered.completions or offered.choices)


@pytest.mark.parametrize("name", COMMAND_LINE)
def test_the_default_in_the_help_is_that_of_the_configuration(name):
    text = options("thin")[name].help
    if "[default: " not in text:
        assert getattr(ThinConfig(), name) in (None, True, False)
        return
    shown = text.partition("[default: ")[2].removesuffix("]")
    if shown in ("auto", "sample with --passes auto"):  # decided by the pipeline, not by the configuration
        assert getattr(ThinConfig(), name) is None
    elif name == "growth":
        assert ThinConfig(growth=shown).growth_schedule == ThinConfig().growth_schedule
    else:
        value = int(shown) if shown.isdigit() else shown
        assert ThinConfig(**{name: value}) == ThinConfig()


@pytest.mark.parametrize(
    ("command", "function", "others"),
    [
        ("merge", ss.merge, {"output", "layout"}),
        ("plan", ss.plan, {"output"}),
        ("compare", comparison.compare, {"output"}),
        ("ksd", ss.ksd, {"cumulative", "validate_scores"}),
    ],
)
def test_options_have_the_names_of_the_parameters_of_the_function(command, function, others):
    files = {"scores", "draws_name", "scores_name", "format", "negate_scores", "output_csv", "parameters"}
    printing = {option.name for option in options(command).values() if option.section == help.PRINTING}
    assert options(command).keys() - files - printing - others <= parameters(function)


def test_options_of_workers_have_the_names_of_the_parameters():
    workers = {option.name for option in options("thin").values() if option.section == help.WORKERS} | {"workers"}
    assert workers and workers <= parameters(ss.parallel.thin)


def test_the_sections_of_the_command_line_are_those_of_the_settings():
    assert help.SECTIONS.keys() == {*get_args(config.Section)} == {one.section for one in COMMAND_LINE.values()}


def test_the_help_of_thin_begins_with_the_options_that_are_used_most_often():
    with click.Context(commands.commands["thin"], info_name="thin") as context:
        text = commands.commands["thin"].get_help(context)
    titles = re.findall(r"^(\w.*):$", text, flags=re.MULTILINE)
    assert titles == list(help.ORDER)
    assert text.index("--burn-in N") < text.index("--draws-name") < text.index("--on-bad")


def test_a_new_setting_is_an_option_without_further_code(monkeypatch):
    offered = config.CommandLine("Weight of the costs.", "measure")
    monkeypatch.setattr(config, "COMMAND_LINE", {**COMMAND_LINE, "cost_weight": offered})
    thin = commands.commands["thin"]
    again = help.Command("thin", callback=thin.callback, params=[])
    found = {option.name: option for option in again.get_params(click.Context(again))}
    assert found["cost_weight"].help == "Weight of the costs.  [default: 0]"
    assert found.keys() >= config.COMMAND_LINE.keys()
