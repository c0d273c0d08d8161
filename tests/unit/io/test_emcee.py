"""emcee's HDF5 files: walkers are chains, the score is a blob."""

import numpy as np
import pytest

from steinstream.errors import InputError
from steinstream.io import emcee as module
from steinstream.io import open_chain
from steinstream.validation import concatenate

emcee = pytest.importorskip("emcee", reason="emcee is not installed")
pytest.importorskip("h5py", reason="h5py is not installed")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:emcee", "ignore::DeprecationWarning:h5py")
WALKERS, DIM, STEPS = 8, 3, 60


def run(path, blobs=(("score", float, (DIM,)),), log_prob=lambda x: (-0.5 * x @ x, -x), name="mcmc"):
    backend = emcee.backends.HDFBackend(path, name=name)
    backend.reset(WALKERS, DIM)
    kind = None if blobs is None else [tuple(blob) for blob in blobs]
    sampler = emcee.EnsembleSampler(WALKERS, DIM, log_prob, backend=backend, blobs_dtype=kind)
    state = np.random.default_rng(0).normal(size=(WALKERS, DIM))
    sampler.random_state = np.random.RandomState(0).get_state()
    sampler.run_mcmc(state, STEPS // 2)
    sampler.run_mcmc(None, STEPS // 2)
    return backend.get_chain()


@pytest.mark.parametrize("held", [32 << 20, 16 * STEPS * DIM * 3, 1])
@pytest.mark.parametrize(("rows", "skip"), [(1000, 0), (7, 0), (16, 75), (9, 60), (5, 479)])
def test_walkers_come_one_after_another(held, rows, skip, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BUFFER", held)
    chain = run(tmp_path / "run.h5")
    opened = open_chain(tmp_path / "run.h5")
    assert (opened.chains, opened.length, opened.dim) == (WALKERS, WALKERS * STEPS, DIM)
    assert opened.scores_from == "mcmc/blobs/score"
    blocks = list(opened.blocks(rows, skip))
    assert all(len(block.draws) <= rows for block in blocks)
    draws, scores, ids = concatenate(blocks)[:3]
    expected = chain.swapaxes(0, 1).reshape(-1, DIM)[skip:]
    assert np.array_equal(draws, expected) and np.array_equal(scores, -expected)
    assert np.array_equal(ids, np.indices((WALKERS, STEPS)).reshape(2, -1).T[skip:])
    blocks[0].scores[:] = 0  # the arrays are the reader's own
    assert all(block.draws.any() and block.scores.any() for block in blocks[1:])


@pytest.mark.parametrize(("rows", "skip"), [(1000, 0), (7, 0), (16, 75), (5, 479)])
def test_walkers_are_read_in_turns(rows, skip, tmp_path):
    chain = run(tmp_path / "run.h5")
    blocks = list(open_chain(tmp_path / "run.h5").blocks(rows, skip, interleaved=True))
    draws, scores, ids = concatenate(blocks)[:3]
    expected = chain.reshape(-1, DIM)[skip:]
    assert np.array_equal(draws, expected) and np.array_equal(scores, -expected)
    assert np.array_equal(ids, np.indices((STEPS, WALKERS)).reshape(2, -1).T[skip:, ::-1])


def test_without_blobs_there_are_the_draws_alone(tmp_path):
    chain = run(tmp_path / "run.h5", None, lambda x: -0.5 * x @ x)
    opened = open_chain(tmp_path / "run.h5")
    blocks = list(opened.blocks(10_000))
    assert not opened.has_scores and blocks[0].scores.shape == (STEPS, 0)
    assert np.array_equal(np.concatenate([block.draws for block in blocks]), chain.swapaxes(0, 1).reshape(-1, DIM))


def test_a_blob_of_another_name_is_named(tmp_path):
    run(tmp_path / "run.h5", [("grad", float, (DIM,)), ("lp", float)], lambda x: (-0.5 * x @ x, -x, 1.0))
    assert not open_chain(tmp_path / "run.h5").has_scores
    with pytest.raises(InputError, match="no blob score; it has grad, lp") as caught:
        open_chain(tmp_path / "run.h5", scores_name="score")
    assert "--scores-name" in caught.value.remedy
    block = next(open_chain(tmp_path / "run.h5", scores_name="grad").blocks())
    assert np.array_equal(block.draws, -block.scores)


def test_blobs_without_fields_are_the_score(tmp_path):
    run(tmp_path / "run.h5", None)
    block = next(open_chain(tmp_path / "run.h5").blocks())
    assert np.array_equal(block.draws, -block.scores)


def test_a_run_without_the_scores_that_were_named_is_refused(tmp_path):
    run(tmp_path / "run.h5", None, lambda x: -0.5 * x @ x)
    with pytest.raises(InputError, match="stored no blobs") as caught:
        open_chain(tmp_path / "run.h5", scores_name="score")
    assert "blobs_dtype=[('score', float, d)]" in caught.value.remedy


def test_a_score_of_another_length_is_refused(tmp_path):
    run(tmp_path / "run.h5", [("score", float)], lambda x: (-0.5 * x @ x, 1.0))
    with pytest.raises(InputError, match="a score has shape"):
        open_chain(tmp_path / "run.h5")


def test_one_of_several_runs_is_named(tmp_path):
    run(tmp_path / "run.h5", name="first")
    chain = run(tmp_path / "run.h5", name="second")
    with pytest.raises(InputError, match="no run mcmc; it has first, second"):
        open_chain(tmp_path / "run.h5")
    block = next(open_chain(tmp_path / "run.h5", draws_name="second").blocks())
    assert np.array_equal(block.draws, chain[:, 0])
