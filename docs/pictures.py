"""The figures of the explanations and of the gallery, and the numbers on the pages: ``make pictures [NAME...]``.

Each function below makes one figure and returns its numbers as the page writes them. They are stored in
pictures/numbers.json. A test runs the functions again and looks for each number below the figure on its page.
"""

from __future__ import annotations

import contextlib
import doctest
import json
import shutil
import sys
import tempfile
from math import erf
from pathlib import Path

import matplotlib
import numpy as np

import steinstream as ss
from steinstream.report.plots import COLOURS
from steinstream.samplers import RandomWalk
from steinstream.targets import Gaussian, Mixture

matplotlib.use("agg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent / "pictures"
THIRD, _, KEPT, _, OTHER, _ = COLOURS
CHAIN, INK = "#b9bec4", "#3d444d"
STYLE = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.constrained_layout.use": True,
    "font.size": 10,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def panels(count: int, height: float = 3.2):
    """Create axes next to each other, as wide as the text of a page."""
    return plt.subplots(1, count, figsize=(8.2, height))


def spaced(number: int) -> str:
    """Format a number as the pages do: 10 000, but 1000."""
    return f"{number:,}".replace(",", " ") if number >= 10_000 else str(number)


def burn_in():
    """A random walk from far out: the kept draws after 500 moves, and after 20 000."""
    sampler = RandomWalk(Gaussian([0.0, 0.0], 1.0), step=0.8)
    _, chain = sampler.sample(sampler.init(np.array([14.0, 14.0]), seed=1), 20_000)
    figure, axes = panels(2)
    numbers = {}
    for ax, end in zip(axes, (500, 20_000), strict=True):
        kept = ss.thin(chain.draws[:end], chain.scores[:end], **ss.PAPER)
        ax.plot(chain.draws[:end, 0], color=CHAIN, lw=0.8, rasterized=True, label="chain")
        ax.plot(kept.ids[:, 1], kept.draws[:, 0], "o", ms=3, mew=0, color=KEPT, label="kept")
        ax.set(title=f"after {spaced(end)} moves: {len(kept)} kept", xlabel="move", ylabel="first parameter")
        ax.xaxis.set_major_formatter(lambda x, _: spaced(int(x)))
        numbers |= {f"kept of {end}": str(len(kept)), f"first kept of {end}": str(kept.ids[0, 1])}
    axes[0].legend()
    return figure, numbers


def proportions():
    """A fifth of the mass in a second mode: what KSD alone keeps of it, and what the stream term does."""
    target = Mixture([[0, 0], [6, 0]], covariances=1.0, weights=[0.8, 0.2])
    draws, scores = target.sample(20_000, seed=1)
    figure, axes = panels(2)
    numbers = {"share of the stream": f"{np.mean(draws[:, 0] > 3):.1%}"}
    for ax, (name, weight) in zip(axes, {"KSD alone": 0.0, "with the stream term": 1.0}.items(), strict=True):
        kept = ss.thin(draws, scores, **{**ss.PAPER, "stream_weight": weight})
        share = f"{np.mean(kept.draws[:, 0] > 3):.1%}"
        ax.plot(*draws[::10].T, ".", ms=2, color=CHAIN)
        ax.plot(*kept.draws.T, "o", ms=3, mew=0, color=KEPT)
        ax.set(title=f"{name}: {share} on the right", xlabel="x0", ylabel="x1", aspect="equal")
        numbers |= {f"share, {name}": share, f"KSD, {name}": f"{kept.ksd:.4f}", f"kept, {name}": str(len(kept))}
    return figure, numbers


def objective():
    """Spread of 50 kept draws of a heavy-tailed target, and errors of the mean on a chain that mixes slowly."""
    colours = {"every 200th draw": CHAIN, "KSD alone": OTHER, "without scores": THIRD, "default": KEPT}

    def kept_sets(draws, scores, size=50):
        stride = draws[len(draws) // (2 * size) :: len(draws) // size]
        kept = {"KSD alone": ss.thin(draws, scores, size=size, stream_weight=0)}
        kept |= {"without scores": ss.thin(draws, size=size), "default": ss.thin(draws, scores, size=size)}
        return {"every 200th draw": stride, **{name: each.draws for name, each in kept.items()}}

    figure, (spread, slow) = panels(2, 3.4)
    rng, numbers = np.random.default_rng(3), {}
    heavy = rng.normal(size=(10_000, 20)) * np.sqrt(4 / rng.chisquare(4, size=(10_000, 1)))
    scores = -24 * heavy / (4 + np.sum(heavy**2, axis=1, keepdims=True))
    for name, draws in kept_sets(heavy, scores).items():
        ratio = np.sort(draws.std(axis=0) / np.sqrt(2.0))
        spread.plot(np.arange(1, 21), ratio, color=colours[name], label=name)
        numbers[f"spread, {name}"] = f"{ratio.mean():.2f}"
    spread.set(title="Student t, 20 parameters", xlabel="parameter, sorted", ylabel="sd of 50 kept draws / sd", ylim=0)
    spread.set_xticks([1, 5, 10, 15, 20])
    spread.legend(fontsize=8)
    errors = {name: [] for name in colours}
    for seed in range(10):
        sampler = RandomWalk(Gaussian(np.zeros(5), 1.0), step=0.12)
        _, chain = sampler.sample(sampler.init(rng.normal(size=5), seed=seed), 10_000)
        for name, draws in kept_sets(chain.draws, chain.scores).items():
            errors[name].append(np.sqrt(np.mean(draws.mean(axis=0) ** 2)))
    values = {name: float(np.mean(each)) for name, each in errors.items()}
    slow.barh([*values][::-1], [*values.values()][::-1], color=[colours[name] for name in values][::-1], height=0.6)
    slow.set(title="random walk with small steps", xlabel="error of the means / sd")
    numbers |= {f"slow chain, {name}": f"{value:.2f}" for name, value in values.items()}
    return figure, numbers


def narrow():
    """Standard deviation of 100 kept draws against the number of dimensions: KSD is content with sets too narrow."""
    dims = (1, 2, 5, 10, 20, 50)
    kernels = {"identity": ("identity", 0.0), "fitted": ("auto", 0.0), "fitted, linear term": ("auto", 1.0)}
    figure, axes = panels(1, 2.8)
    numbers = {}
    for (name, (preconditioner, linear)), colour in zip(kernels.items(), (OTHER, KEPT, THIRD), strict=True):
        widths = []
        for dim in dims:
            draws = np.random.default_rng(dim).normal(size=(10_000, dim))
            kept = ss.thin(
                draws, -draws, size=100, kernel=ss.IMQ(linear=linear), preconditioner=preconditioner, stream_weight=0
            )
            widths.append(np.sqrt(np.mean(kept.draws**2)))
        axes.plot(dims, widths, "o-", ms=4, color=colour, label=name)
        numbers[f"{name}, d = 50"] = f"{widths[-1]:.2f}"
    axes.axhline(1, color=CHAIN, lw=1, zorder=0)
    axes.set(xscale="log", xlabel="dimensions", ylabel="sd of the kept draws", xticks=dims, xticklabels=dims)
    axes.minorticks_off()
    axes.legend(title="preconditioner")
    return figure, numbers


def four_modes():
    """The draws that the pictures of growth use."""
    return Mixture([[0, 0], [3, 0], [0, 3], [3, 3]], covariances=0.5).sample(20_000, seed=0)


def curves(runs):
    """Size and KSD against draws, one line a run."""
    figure, axes = panels(2)
    numbers = {}
    for (name, kept), colour in zip(runs.items(), (CHAIN, THIRD, KEPT, OTHER), strict=True):
        for ax, values in zip(axes, (kept.history.size, kept.history.ksd), strict=True):
            ax.plot(kept.history.step, values, color=colour, label=name)
        numbers |= {f"{name}: kept": spaced(len(kept)), f"{name}: KSD": f"{kept.ksd:.4f}"}
    for ax, label in zip(axes, ("draws kept", "KSD of what is kept"), strict=True):
        low = min(10, *(line.get_ydata()[-1] for line in ax.lines))
        ax.set(xscale="log", yscale="log", xlabel="draws", ylabel=label, xlim=(10, None), ylim=(0.8 * low, None))
    axes[0].legend()
    return figure, numbers


def growth():
    """How many are kept, and how good they are, by growth."""
    draws, scores = four_modes()
    names = ("none", "linear", "sqrt", "constant:50")
    return curves({name: ss.thin(draws, scores, **{**ss.PAPER, "growth": name}) for name in names})


def budget():
    """The same by budget, in ten dimensions, where a budget of 0 keeps far more than growth asks for."""
    draws = np.random.default_rng(0).normal(size=(5_000, 10))
    names = ("0", "share:5", "share:10", "share:20")
    settings = {name: {**ss.PAPER, "budget": 0.0 if name == "0" else name} for name in names}
    return curves({f"budget {name}": ss.thin(draws, -draws, **settings[name]) for name in names})


def kernel():
    """How far 100 kept draws are from the target, by kernel and length scale; means over ten streams."""
    scales, seeds = np.geomspace(0.03, 100, 15), range(10)
    figure, axes = panels(2)
    numbers = {}
    for ax, dim in zip(axes, (2, 10), strict=True):
        streams = [np.random.default_rng(seed).normal(size=(5_000, dim)) for seed in seeds]

        def error(streams=streams, **settings):
            return np.mean(
                [off(ss.thin(draws, -draws, size=100, **settings, stream_weight=0).draws) for draws in streams]
            )

        for name, base, colour in (("IMQ", ss.IMQ(), KEPT), ("RBF", ss.RBF(h=1.0), OTHER)):
            errors = [error(kernel=base, preconditioner=ss.Preconditioner.length_scale(scale)) for scale in scales]
            ax.plot(scales, errors, "o-", ms=3, color=colour, label=name)
            numbers |= {
                f"{name}, d = {dim}: least": f"{min(errors):.3f}",
                f"{name}, d = {dim}: at 0.1": f"{errors[2]:.2f}",
            }
        stride = np.mean([off(draws[::50]) for draws in streams])
        ax.axhline(stride, color=CHAIN, label="every 50th draw")
        ax.axvline(np.sqrt(2 * dim), color=INK, lw=0.8, ls=":", label="default")
        ax.set(xscale="log", ylim=(0, None), xlabel="length scale", title=f"{dim} dimensions")
        numbers |= {f"stride, d = {dim}": f"{stride:.3f}", f"default, d = {dim}": f"{error():.3f}"}
    axes[0].set(ylabel="error of a marginal")
    axes[0].legend()
    return figure, numbers


def off(points):
    """The largest difference of distribution functions, of kept draws and of the normal; mean over the parameters."""
    ordered = np.sort(points, axis=0)
    true = 0.5 * (1 + np.vectorize(erf)(ordered / np.sqrt(2)))
    n = len(points)
    above, below = np.arange(1, n + 1)[:, None] / n - true, true - np.arange(n)[:, None] / n
    return float(np.maximum(above, below).max(axis=0).mean())


def preconditioner():
    """Widths 1 and 0.01: the kept draws in the identity coordinates, and in coordinates that follow the stream."""
    widths, noise = np.array([1.0, 0.01]), np.random.default_rng(0).normal(size=(10_000, 2))
    chain = np.empty_like(noise)
    state = np.full(2, 10.0)
    for i, z in enumerate(noise):  # forgets a tenth of itself at each step, and starts ten widths out
        chain[i] = state = 0.9 * state + np.sqrt(1 - 0.9**2) * z
    draws = chain * widths
    figure, axes = panels(2)
    numbers = {}
    kinds = {"identity": ss.Preconditioner.identity(), "streaming": ss.Streaming()}
    for ax, (name, kind) in zip(axes, kinds.items(), strict=True):
        thinner = ss.Thinner(2, size=100, preconditioner=kind, stream_weight=0)
        thinner.extend(draws, -draws / widths**2)
        first, second = thinner.kept.draws.std(axis=0) / widths
        ax.plot(*draws[100::5].T, ".", ms=2, color=CHAIN)
        ax.plot(*thinner.kept.draws.T, "o", ms=3.5, mew=0, color=KEPT)
        ax.set(title=f"{name}: widths {first:.2f} and {second:.2f}", xlabel="x0", ylabel="x1")
        numbers |= {f"{name}: first": f"{first:.2f}", f"{name}: second": f"{second:.2f}"}
    return figure, numbers


PICTURES = (burn_in, objective, proportions, narrow, growth, budget, kernel, preconditioner)


def numbers_of(picture):
    """Return the numbers of a figure."""
    with plt.rc_context(STYLE):
        figure, numbers = picture()
        plt.close(figure)
    return numbers


def main(names):
    """Make the figures with these names, or all."""
    path = FOLDER / "numbers.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    for picture in PICTURES:
        if names and picture.__name__ not in names:
            continue
        with plt.rc_context(STYLE):
            figure, known[picture.__name__] = picture()
            figure.savefig(FOLDER / f"{picture.__name__.replace('_', '-')}.png", dpi=160, metadata={"Software": None})
        print(picture.__name__, known[picture.__name__])
    path.write_text(json.dumps(known, indent=1) + "\n")
    if not names or "gallery" in names:
        gallery()


def gallery():
    """Run the code of gallery.md and store its figures."""
    page = FOLDER.parent / "gallery.md"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        if doctest.testfile(str(page), module_relative=False).failed:
            raise SystemExit("The code of gallery.md failed.")
        for figure in Path(folder).glob("*.png"):
            shutil.copy(figure, page.with_suffix("") / figure.name)


if __name__ == "__main__":
    main(sys.argv[1:])
