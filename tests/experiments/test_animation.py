"""The animation shows each draw first as new, then as kept or dropped."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from click.testing import CliRunner

import steinstream as ss
from experiments import animation
from steinstream.errors import InputError

Image, ImageColor = pytest.importorskip("PIL.Image"), pytest.importorskip("PIL.ImageColor")
pytest.importorskip("matplotlib", reason="matplotlib is not installed")


@pytest.fixture(scope="module")
def chain():
    return animation.example(120, seed=0)


def rows(points):
    return set(map(tuple, points))


def test_frames_are_the_thinner_step_by_step(chain):
    _, draws, scores = chain
    shown = list(animation.frames(draws, scores))
    thinner = ss.Thinner(2, **ss.PAPER)
    before: set = set()
    for frame in shown:
        if len(frame.new):
            step = thinner.extend(frame.new, scores[thinner.seen : frame.seen])
            assert (frame.seen, frame.size, frame.ksd) == (thinner.seen, step.size, step.ksd)
        kept = rows(thinner.kept.draws)
        assert rows(frame.kept) | (rows(frame.new) & kept) == kept
        assert rows(frame.dropped) == before - kept - rows(frame.new)
        before = kept | rows(frame.new)
    assert np.array_equal(np.vstack([frame.new for frame in shown]), draws)
    assert [len(frame.new) for frame in shown[:40]] == [1] * 40
    assert rows(shown[-1].kept) == rows(thinner.kept.draws) and not len(shown[-1].dropped)


def test_burn_in_is_shown_and_dropped(chain):
    _, draws, scores = chain
    start = tuple(draws[0])
    shown = list(animation.frames(draws, scores))
    assert start in rows(shown[0].new) and start in rows(shown[1].kept) | rows(shown[1].dropped)
    assert any(start in rows(frame.dropped) for frame in shown) and start not in rows(shown[-1].kept)


@pytest.mark.parametrize("suffix", ["gif", "webp"])
def test_the_file_contains_all_frames_in_the_named_colours_and_loops(chain, tmp_path, suffix):
    shown = animation.animate(tmp_path / f"a.{suffix}", *chain, width=360)
    with Image.open(tmp_path / f"a.{suffix}") as film:
        assert film.size == (360, 250) and film.n_frames == len(shown) and film.info["loop"] == 0
        first, last = colours(film, 30), colours(film, film.n_frames - 1)
        assert film.info["duration"] > 1000
        points = colours(film, film.n_frames - 1, above=222)  # without the legend
    new, kept = (ImageColor.getrgb(name) for name in (animation.NEW, animation.KEPT))
    assert {new, kept} <= first and {new, kept} <= last
    assert kept in points and new not in points  # at the end nothing is new


def colours(film, number, above=None):
    film.seek(number)
    return rows(np.asarray(film.convert("RGB"))[:above].reshape(-1, 3).tolist())


def test_the_same_seed_gives_the_same_bytes(chain, tmp_path):
    for name in ("a.gif", "b.gif"):
        animation.animate(tmp_path / name, *chain, width=240)
    assert (tmp_path / "a.gif").read_bytes() == (tmp_path / "b.gif").read_bytes()
    assert not np.array_equal(animation.example(120, seed=1)[1], chain[1])


def test_unsupported_files_and_shapes_are_refused(chain, tmp_path):
    target, draws, scores = chain
    with pytest.raises(InputError, match=r"a\.mp4 has no suffix of an animation.*\.gif or \.webp"):
        animation.animate(tmp_path / "a.mp4", target, draws, scores)
    with pytest.raises(InputError, match=r"shape \(120, 3\)"):
        animation.animate(tmp_path / "a.gif", target, np.zeros((120, 3)), np.zeros((120, 3)))
    assert not list(tmp_path.iterdir())


def test_the_command_writes_the_picture_of_the_readme(tmp_path):
    result = CliRunner().invoke(animation.command, ["-o", str(tmp_path / "thinning.gif")], catch_exceptions=False)
    assert result.exit_code == 0 and "of 800 draws" in result.output
    assert [file.name for file in tmp_path.iterdir()] == ["thinning.gif"]
    assert 100_000 < (tmp_path / "thinning.gif").stat().st_size < 1_000_000


def test_a_missing_matplotlib_is_reported_with_the_remedy(tmp_path, environment):
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from experiments.animation import command, main; main(command, 'python -m experiments.animation')"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.returncode == 2 and "steinstream[plot]" in ran.stderr and "Traceback" not in ran.stderr
