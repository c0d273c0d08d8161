"""Subspaces of weights: positions of the given networks, orthonormal and principal directions, refused input."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import torch

from steinstream.errors import InputError
from steinstream.integrations.torch import Subspace


def numbers(*shape, seed=0):
    return torch.as_tensor(np.random.default_rng(seed).normal(size=shape))


def test_the_integrations_do_not_import_torch_before_it_is_used():
    program = (
        "import sys\n"
        "import steinstream.integrations\n"
        "from steinstream.integrations.torch import Collector\n"
        "assert 'torch' not in sys.modules\n"
        "from steinstream.integrations.torch import FlatNetwork, Subspace, SubspacePosterior\n"
        "assert 'torch' in sys.modules and 'experiments' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_a_missing_torch_is_reported_with_the_remedy():
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from steinstream.errors import InputError\n"
        "import steinstream.integrations.torch as integration\n"
        "try:\n    integration.Subspace\nexcept InputError as error:\n    print(error)\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "steinstream[torch]" in ran.stdout, ran.stderr


def test_the_plane_of_a_curve_contains_its_networks_at_the_stated_positions():
    first, midpoint, second = (numbers(50, seed=seed) for seed in range(3))
    plane = Subspace.from_curve(first, midpoint, second)
    for z, weights in (([1, 0], first), ([-1, 0], second), ([0, 1], midpoint), ([0, 0], (first + second) / 2)):
        torch.testing.assert_close(plane.weights(np.array(z, float)), weights)
        np.testing.assert_allclose(plane.coordinates(weights), z, atol=1e-12)
    for t in (0.0, 0.3, 1.0):  # the whole curve lies in the plane
        for end in (first, second):
            point = end + t * (midpoint - end)
            torch.testing.assert_close(plane.weights(plane.coordinates(point)), point)


def test_random_directions_are_orthonormal_and_depend_on_the_seed():
    base = numbers(40)
    space = Subspace.random(base, 5, seed=1)
    torch.testing.assert_close(space.directions @ space.directions.T, torch.eye(5, dtype=torch.float64))
    assert torch.equal(space.directions, Subspace.random(base, 5, seed=1).directions)
    assert not torch.equal(space.directions, Subspace.random(base, 5, seed=2).directions)


def test_principal_directions_explain_the_variance_of_the_trajectory():
    axes = Subspace.random(torch.zeros(30, dtype=torch.float64), 3, seed=0).directions
    points = 7.0 + numbers(400, 3) * torch.tensor([5.0, 2.0, 0.01]) @ axes
    space = Subspace.from_trajectory(points, 2)
    torch.testing.assert_close(space.base, points.mean(dim=0))
    z = np.array([space.coordinates(point) for point in points])
    np.testing.assert_allclose(np.cov(z, rowvar=False), np.eye(2), atol=1e-9)  # one standard deviation long each
    assert (points - torch.stack([space.weights(row) for row in z])).abs().max() < 0.1


def test_dependent_directions_and_wrong_shapes_are_refused():
    one = numbers(10)
    with pytest.raises(InputError, match="linearly dependent"):
        Subspace.from_curve(one, one, one)
    with pytest.raises(InputError, match=r"directions of shape \(k, p\)"):
        Subspace(one, numbers(2, 9))
    with pytest.raises(InputError, match="dim is 3 for 3 weight vectors"):
        Subspace.from_trajectory([one, 2 * one, 3 * one], 3)
    with pytest.raises(InputError, match="dim is 11 for 10 weights"):
        Subspace.random(one, 11, seed=0)
    with pytest.raises(InputError, match=r"z has shape \(3,\)"):
        Subspace.random(one, 2, seed=0).weights(np.zeros(3))


def test_a_subspace_can_be_moved_to_a_device():
    space = Subspace.random(numbers(10), 2, seed=0).to("cpu")
    assert space.dim == 2 and space.base.device.type == "cpu"
