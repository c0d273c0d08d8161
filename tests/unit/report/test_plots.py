"""Each figure can be made alone, and does not depend on the user's matplotlib settings."""

from __future__ import annotations

import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import steinstream as ss
from steinstream.report import plots
from steinstream.report.chain_comparison import ChainComparison
from steinstream.report.chain_summary import summarise_chain
from steinstream.report.style import as_svg, figure_style, new_figure, plain_ticks


def test_each_figure_stands_alone(written, chain, folder):
    kept, _ = written
    before = dict(matplotlib.rcParams)
    figures = {
        "trace": ss.plot.trace(kept),
        "pairs": ss.plot.pairs(kept, chain),
        "marginals": ss.plot.marginals(kept, chain),
        "kept_along_chain": ss.plot.kept_along_chain(kept, chain),
        "alone": ss.plot.kept_along_chain(kept),
    }
    panels = {"trace": 2, "pairs": 6, "marginals": 4, "kept_along_chain": 2, "alone": 1}
    assert {name: len(figure.axes) for name, figure in figures.items()} == panels
    for name, figure in figures.items():
        assert isinstance(figure, Figure)
        figure.savefig(folder / f"{name}.png")
        assert figure._repr_html_().count("<svg") == 1
    assert dict(matplotlib.rcParams) == before


def test_figures_do_not_depend_on_the_users_settings(written):
    kept, _ = written
    plain = ss.plot.trace(kept)._repr_html_()
    with matplotlib.rc_context({"text.usetex": True, "axes.facecolor": "black", "font.size": 30}):
        assert ss.plot.trace(kept)._repr_html_() == plain


def test_plot_is_the_module_of_the_figures():
    assert ss.plot is plots and "plot" in dir(ss)


def test_without_matplotlib_the_error_names_the_extra(written, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ss.SteinstreamError, match=r"steinstream\[plot\]"):
        ss.plot.trace(written[0])


def test_many_parameters_are_limited_to_those_that_differ_most(written):
    x = np.random.default_rng(0).normal(size=(600, 9))
    kept = ss.thin(x, -x, size=30)
    assert len(ss.plot.pairs(kept, most=3).axes) == 3 and len(ss.plot.marginals(kept, most=4).axes) == 4


def test_densities_integrate_to_the_mass_within_the_limits():
    x = np.random.default_rng(0).normal(size=5000)
    grid, density = plots.smoothed_density(x, None, (-6.0, 6.0), 0.2)
    assert density.sum() * (grid[1] - grid[0]) == pytest.approx(1.0, abs=1e-3)
    _, weighted = plots.smoothed_density(np.array([-1.0, 1.0]), np.array([3.0, 1.0]), (-6.0, 6.0), 0.3)
    assert weighted[grid < 0].sum() / weighted.sum() == pytest.approx(0.75, abs=0.01)


def test_limits_show_the_bulk_and_not_the_outliers():
    x = np.r_[np.random.default_rng(0).normal(size=5000), 1e6]
    low, high = plots.axis_limits(x)
    assert -8 < low < -2.5 and 2.5 < high < 8
    assert plots.axis_limits(np.full(10, 4.0)) == (2.0, 6.0)


def test_svg_has_css_colours_and_a_description_and_no_scripts():
    with figure_style():
        figure, axes = new_figure(2, 2)
        axes.loglog([1, 1e4], [1, 10], color="#009e73")
        plain_ticks(axes.xaxis, whole=True)
    svg = as_svg(figure, 'a "description"')
    assert 'aria-label="a &quot;description&quot;"' in svg and "var(--kept,#009e73)" in svg and "10 000" in svg
    assert "<metadata" not in svg and "<style" not in svg


def test_contours_are_those_of_the_chain_only():
    x = np.random.default_rng(0).normal(size=(600, 2))
    kept = ss.thin(x, -x, size=50)
    _, (compared, alone) = new_figure(4.0, 2.0, 1, 2)
    plots.pair_panel(compared, ChainComparison(kept, summarise_chain(kept, None)), 0, 1)
    plots.pair_panel(alone, ChainComparison(kept, None), 0, 1)
    assert compared.collections and not alone.collections and alone.lines
