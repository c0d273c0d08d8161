"""The targets: what is sampled, how, and whether a target chooses settings, confirms them, or is fresh.

A fresh target was added after the settings were fixed. Only the correction of slow chains was added later.

`TARGETS` lists them by name. ``build`` makes the `Problem`; it loads JAX for the targets that are sampled by NUTS.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.quality.sampling import (
    Array,
    Chain,
    Function,
    Problem,
    exact,
    in_coordinates,
    jax_functions,
    nuts,
    run_nuts,
    run_walks,
    walk,
    with_scores,
)

CHOOSE, CONFIRM, FRESH = "choose", "confirm", "fresh"
SIZES = (50, 100, 200, 500)
SEEDS = (0, 1, 2)
SLOW = "slow chain"  # kind of the chains with burn-in or bad mixing, in at most ten dimensions
WIDE = "slow chain, many dimensions"  # worth fewer draws than the target has variances and covariances


class Target(NamedTuple):
    """A target of the suite.

    ``scales`` are the indices of log scale parameters of hierarchical models; ``needs`` are packages; ``data`` is the
    file below the data folder that is required. The reference is the same for all seeds unless ``reference_per_seed``.
    """

    name: str
    kind: str
    half: str
    dim: int
    stream: str
    build: Callable[[Path | None], Problem]
    sizes: tuple[int, ...] = SIZES
    scales: tuple[int, ...] = ()
    needs: tuple[str, ...] = ()
    data: str | None = None
    reference_per_seed: bool = False

    def missing(self, data: Path | None) -> str | None:
        """Return what is missing to build the target, or None."""
        from importlib.util import find_spec

        for package in self.needs:
            if find_spec(package) is None:
                return f"package {package}"
        if self.data is not None and (data is None or not (data / self.data).exists()):
            return f"file {self.data} in the folder given by --data"
        return None


TARGETS: dict[str, Target] = {}


def _add(name: str, kind: str, half: str, dim: int, stream: str, **more: Any) -> Callable[..., Any]:
    """Register the function below as the builder of a target."""

    def register(build: Callable[..., Problem]) -> Callable[..., Problem]:
        needs = ("jax", "numpyro") if "NUTS" in stream and "posteriordb" not in name else ()
        TARGETS[name] = Target(name, kind, half, dim, stream, build, **{"needs": needs, **more})
        return build

    return register


# -- Gaussian and Student t --------------------------------------------------------------------------------------------


def _gaussian(covariance: Array) -> Problem:
    precision, factor = np.linalg.inv(covariance), np.linalg.cholesky(covariance)
    return exact(
        lambda x: -0.5 * np.einsum("ni,ij,nj->n", x, precision, x),
        lambda x: -x @ precision,
        lambda rng, n: rng.normal(size=(n, len(factor))) @ factor.T,
    )


def _autoregressive(dim: int, correlation: float) -> Array:
    """Covariance of an autoregressive process whose sds go from 0.1 to 10."""
    lags = np.abs(np.subtract.outer(np.arange(dim), np.arange(dim)))
    scales = np.geomspace(0.1, 10, dim)
    return correlation**lags * np.outer(scales, scales)


@_add("gauss-2", "Gaussian", CHOOSE, 2, "independent")
def _gauss_2(_: Path | None) -> Problem:
    return _gaussian(_autoregressive(2, 0.9))


@_add("gauss-20", "Gaussian", CONFIRM, 20, "independent")
def _gauss_20(_: Path | None) -> Problem:
    return _gaussian(_autoregressive(20, 0.7))


@_add("gauss-50", "Gaussian", CHOOSE, 50, "independent")
def _gauss_50(_: Path | None) -> Problem:
    return _gaussian(_autoregressive(50, 0.5))


FREEDOM = 4.0


def _multivariate_t(dim: int) -> Problem:
    """Student t with a common scale: all coordinates of a draw are extreme together."""

    def draw(rng: np.random.Generator, n: int) -> Array:
        return rng.normal(size=(n, dim)) * np.sqrt(FREEDOM / rng.chisquare(FREEDOM, size=(n, 1)))

    return exact(
        lambda x: -0.5 * (FREEDOM + dim) * np.log1p((x**2).sum(1) / FREEDOM),
        lambda x: -(FREEDOM + dim) * x / (FREEDOM + (x**2).sum(1, keepdims=True)),
        draw,
    )


@_add("t-5", "Student t", CONFIRM, 5, "independent")
def _t_5(_: Path | None) -> Problem:
    """Five independent coordinates."""
    return exact(
        lambda x: -0.5 * (FREEDOM + 1) * np.log1p(x**2 / FREEDOM).sum(1),
        lambda x: -(FREEDOM + 1) * x / (FREEDOM + x**2),
        lambda rng, n: rng.standard_t(FREEDOM, size=(n, 5)),
    )


@_add("t-20", "Student t", CHOOSE, 20, "independent")
def _t_20(_: Path | None) -> Problem:
    return _multivariate_t(20)


@_add("t-100", "Student t", CONFIRM, 100, "independent")
def _t_100(_: Path | None) -> Problem:
    return _multivariate_t(100)


# -- curved, skewed, several modes -------------------------------------------------------------------------------------

_BEND, _WIDTH = 1.0, 0.3


def _banana_log_density(x: Array) -> Array:
    return -0.5 * (x[:, 0] ** 2 + ((x[:, 1] - _BEND * x[:, 0] ** 2) / _WIDTH) ** 2)


def _banana_score(x: Array) -> Array:
    across = (x[:, 1] - _BEND * x[:, 0] ** 2) / _WIDTH**2
    return np.stack([-x[:, 0] + 2 * _BEND * x[:, 0] * across, -across], axis=1)


def _banana_draws(rng: np.random.Generator, n: int) -> Array:
    first, second = rng.normal(size=(2, n))
    return np.stack([first, _BEND * first**2 + _WIDTH * second], axis=1)


@_add("banana", "curved", CHOOSE, 2, "independent")
def _banana(_: Path | None) -> Problem:
    return exact(_banana_log_density, _banana_score, _banana_draws)


_NECK = 1.5  # sd of the log variance; with Neal's 3 the sds of the others cannot be estimated from a sample


@_add("funnel", "curved", CONFIRM, 10, "independent", scales=(0,))
def _funnel(_: Path | None) -> Problem:
    """Neal's funnel: v ~ N(0, 1.5^2), x_i ~ N(0, exp(v))."""

    def log_density(x: Array) -> Array:
        v, rest = x[:, 0], x[:, 1:]
        return -0.5 * (v**2 / _NECK**2 + rest.shape[1] * v + (rest**2).sum(1) * np.exp(-v))

    def score(x: Array) -> Array:
        v, rest = x[:, :1], x[:, 1:]
        first = -v / _NECK**2 - 0.5 * rest.shape[1] + 0.5 * (rest**2).sum(1, keepdims=True) * np.exp(-v)
        return np.concatenate([first, -rest * np.exp(-v)], axis=1)

    def draw(rng: np.random.Generator, n: int) -> Array:
        v = _NECK * rng.normal(size=(n, 1))
        return np.concatenate([v, np.exp(v / 2) * rng.normal(size=(n, 9))], axis=1)

    return exact(log_density, score, draw)


def _mixture(weights: Array, means: Array, sds: Array) -> Problem:
    """Mixture of isotropic Gaussians: weights (k,), means (k, d), sds (k,)."""
    dim = means.shape[1]

    def logs(x: Array) -> Array:
        squares = ((x[:, None] - means) ** 2).sum(2)
        return np.log(weights) - dim * np.log(sds) - 0.5 * squares / sds**2

    def log_density(x: Array) -> Array:
        parts = logs(x)
        top = parts.max(1)
        return top + np.log(np.exp(parts - top[:, None]).sum(1))

    def score(x: Array) -> Array:
        shares = np.exp(logs(x) - log_density(x)[:, None])
        return np.einsum("nk,nkd->nd", shares, (means - x[:, None]) / sds[:, None] ** 2)

    def draw(rng: np.random.Generator, n: int) -> Array:
        mode = rng.choice(len(weights), size=n, p=weights)
        return means[mode] + sds[mode, None] * rng.normal(size=(n, dim))

    return exact(log_density, score, draw)


@_add("mixture-2", "mixture", CHOOSE, 2, "independent")
def _mixture_2(_: Path | None) -> Problem:
    """Two modes, eight sds from each other."""
    return _mixture(np.array([0.3, 0.7]), np.array([[-4.0, 0.0], [4.0, 0.0]]), np.ones(2))


@_add("mixture-4", "mixture", CONFIRM, 10, "independent")
def _mixture_4(_: Path | None) -> Problem:
    """Four modes of different width."""
    means = np.random.default_rng(4).normal(size=(4, 10)) * 2.5
    return _mixture(np.array([0.4, 0.3, 0.2, 0.1]), means, np.array([1.0, 0.7, 1.3, 1.0]))


@_add("log-gamma", "skewed", CHOOSE, 10, "independent")
def _log_gamma(_: Path | None) -> Problem:
    """Logarithms of gamma variables, shapes 0.5 to 3."""
    shapes = np.linspace(0.5, 3, 10)
    return exact(
        lambda x: (shapes * x - np.exp(x)).sum(1),
        lambda x: shapes - np.exp(x),
        lambda rng, n: np.log(rng.gamma(shapes, size=(n, 10))),
    )


# -- regression --------------------------------------------------------------------------------------------------------


def regression_data(seed: int, count: int, dim: int) -> tuple[Array, Array, np.random.Generator]:
    """Correlated predictors with an intercept, and true coefficients."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(count, 1))
    x = np.concatenate([np.ones((count, 1)), 0.6 * common + 0.8 * rng.normal(size=(count, dim - 1))], axis=1)
    return x, rng.normal(size=dim) / np.sqrt(dim), rng


def _logistic_density(dim: int, count: int) -> Callable[[Any], Any]:
    import jax
    import jax.numpy as jnp

    x, coefficients, rng = regression_data(11, count, dim)
    y = rng.random(count) < 1 / (1 + np.exp(-x @ coefficients * 2))

    def log_density(q: Any) -> Any:
        logits = jnp.asarray(x) @ q
        return jnp.sum(y * logits - jax.nn.softplus(logits)) - 0.5 * jnp.sum(q**2) / 2.5**2

    return log_density


@_add("logistic", "regression", CHOOSE, 10, "NUTS")
def _logistic(_: Path | None) -> Problem:
    return nuts(_logistic_density(10, 200), 10)


@_add("poisson", "regression", CONFIRM, 8, "NUTS")
def _poisson(_: Path | None) -> Problem:
    import jax.numpy as jnp

    x, coefficients, rng = regression_data(12, 100, 8)
    y = rng.poisson(np.exp(x @ coefficients))

    def log_density(q: Any) -> Any:
        logs = jnp.asarray(x) @ q
        return jnp.sum(y * logs - jnp.exp(logs)) - 0.5 * jnp.sum(q**2) / 2.5**2

    return nuts(log_density, 8)


# -- hierarchical models -----------------------------------------------------------------------------------------------

_SCHOOLS = np.array([28.0, 8, -3, 7, -1, 1, 18, 12])
_SCHOOL_SDS = np.array([15.0, 10, 16, 11, 9, 11, 10, 18])


def _schools_density(centred: bool) -> Callable[[Any], Any]:
    """Eight schools: position (theta or eta, mu, log tau); mu ~ N(0, 5), tau ~ half-Cauchy(5)."""
    import jax.numpy as jnp

    def log_density(q: Any) -> Any:
        effects, mu, log_tau = q[:8], q[8], q[9]
        tau = jnp.exp(log_tau)
        theta = effects if centred else mu + tau * effects
        prior = -0.5 * jnp.sum(((effects - mu) / tau) ** 2) - 8 * log_tau if centred else -0.5 * jnp.sum(effects**2)
        return (
            prior
            - 0.5 * jnp.sum(((theta - _SCHOOLS) / _SCHOOL_SDS) ** 2)
            - 0.5 * (mu / 5) ** 2
            - jnp.log1p((tau / 5) ** 2)
            + log_tau
        )

    return log_density


def _schools_centre(q: Array) -> Array:
    """Change from (eta, mu, log tau) to (theta, mu, log tau)."""
    return np.concatenate([q[:, 8:9] + np.exp(q[:, 9:]) * q[:, :8], q[:, 8:]], axis=1)


@_add("schools-noncentred", "hierarchical", CONFIRM, 10, "NUTS", scales=(9,))
def _schools_noncentred(_: Path | None) -> Problem:
    return nuts(_schools_density(centred=False), 10, accept=0.95)


@_add("schools-centred", "hierarchical", CHOOSE, 10, "NUTS", scales=(9,))
def _schools_centred(_: Path | None) -> Problem:
    """Sampled in the other coordinates, because NUTS does not reach the neck of this funnel."""
    sampled = nuts(_schools_density(centred=False), 10, accept=0.95)
    return in_coordinates(_schools_density(centred=True), _schools_centre, sampled)


def _radon_density(groups: int, centred: bool) -> Callable[[Any], Any]:
    """Varying intercepts: position (a or eta (groups,), mean, log tau, slope, log sigma), groups of 1 to 20 rows."""
    import jax.numpy as jnp

    rng = np.random.default_rng(groups)
    group = np.repeat(np.arange(groups), 1 + rng.geometric(0.2, size=groups).clip(max=19))
    floor = rng.random(len(group)) < 0.2
    y = 1.4 + 0.25 * rng.normal(size=groups)[group] - 0.7 * floor + 0.75 * rng.normal(size=len(group))

    def log_density(q: Any) -> Any:
        effects, (mean, log_tau, slope, log_sigma) = q[:groups], q[groups:]
        tau, sigma = jnp.exp(log_tau), jnp.exp(log_sigma)
        a = effects if centred else mean + tau * effects
        if centred:
            prior = -0.5 * jnp.sum(((effects - mean) / tau) ** 2) - groups * log_tau
        else:
            prior = -0.5 * jnp.sum(effects**2)
        residuals = (y - a[group] - slope * floor) / sigma
        likelihood = -0.5 * jnp.sum(residuals**2) - len(y) * log_sigma
        scales = -0.5 * (tau**2 + sigma**2) + log_tau + log_sigma  # half-normal priors
        return prior + likelihood + scales - 0.5 * (mean**2 + slope**2) / 5**2

    return log_density


def _radon_centre(groups: int) -> Function:
    def to_position(q: Array) -> Array:
        effects, rest = q[:, :groups], q[:, groups:]
        return np.concatenate([rest[:, :1] + np.exp(rest[:, 1:2]) * effects, rest], axis=1)

    return to_position


@_add("radon-noncentred", "hierarchical", CHOOSE, 44, "NUTS", scales=(41, 43))
def _radon_noncentred(_: Path | None) -> Problem:
    return nuts(_radon_density(40, centred=False), 44, accept=0.9)


@_add("radon-centred", "hierarchical", CONFIRM, 89, "NUTS", scales=(86, 88))
def _radon_centred(_: Path | None) -> Problem:
    sampled = nuts(_radon_density(85, centred=False), 89, accept=0.9)
    return in_coordinates(_radon_density(85, centred=True), _radon_centre(85), sampled)


_TIMES = 60


@_add("volatility", "time series", CONFIRM, _TIMES + 3, "NUTS", scales=(_TIMES + 2,))
def _volatility(_: Path | None) -> Problem:
    """Stochastic volatility: position (innovations (60,), mean, atanh of the persistence, log sd of innovations)."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(13)
    h = np.empty(_TIMES)
    h[0] = -1.0
    for t in range(1, _TIMES):
        h[t] = -1 + 0.9 * (h[t - 1] + 1) + 0.4 * rng.normal()
    y = np.exp(h / 2) * rng.normal(size=_TIMES)

    def log_density(q: Any) -> Any:
        noise, (mean, atanh, log_sd) = q[:_TIMES], q[_TIMES:]
        persistence, sd = jnp.tanh(atanh), jnp.exp(log_sd)
        first = noise[0] * sd / jnp.sqrt(1 - persistence**2)
        _, later = jax.lax.scan(lambda x, e: (persistence * x + sd * e,) * 2, first, noise[1:])
        h = mean + jnp.concatenate([first[None], later])
        prior = -0.5 * (jnp.sum(noise**2) + (mean + 1) ** 2 + (atanh - 1.5) ** 2 / 0.25 + (log_sd + 1) ** 2 / 0.25)
        return prior - 0.5 * jnp.sum(h + y**2 * jnp.exp(-h))

    return nuts(log_density, _TIMES + 3, accept=0.9)


# -- posteriordb: ten chains of 1000 draws, five as work chain and the others as reference -----------------------------

_SPLITS = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9), (0, 2, 4, 6, 8))  # work chains of the three seeds


def _posteriordb(file: str) -> Callable[[Path | None], Problem]:
    def build(data: Path | None) -> Problem:
        if data is None:
            raise ValueError(f"The data folder with {file} is required.")
        with np.load(data / file) as stored:
            draws, scores = stored["draws"], stored["scores"]

        def chain(seed: int) -> Chain:
            rows = list(_SPLITS[seed])
            return Chain(draws[rows], scores[rows])

        def reference(seed: int) -> Array:
            rows = [row for row in range(10) if row not in _SPLITS[seed]]
            return draws[rows].reshape(-1, draws.shape[-1])

        return Problem(chain, reference)

    return build


for _name, _file, _half, _dim, _scales in (
    ("diamonds", "diamonds-diamonds", CHOOSE, 26, ()),
    ("garch", "garch-garch11", CHOOSE, 4, ()),
    ("lotka-volterra", "hudson_lynx_hare-lotka_volterra", CHOOSE, 8, ()),
    ("eight-schools", "eight_schools-eight_schools_noncentered", CONFIRM, 10, (9,)),
    ("kidiq", "kidiq-kidscore_interaction", CONFIRM, 5, ()),
    ("gauss-mix", "low_dim_gauss_mix-low_dim_gauss_mix", CONFIRM, 5, ()),
):
    _path = f"posteriordb/{_file}.npz"
    _more = {"scales": _scales, "data": _path, "reference_per_seed": True}
    _add(f"posteriordb-{_name}", "posteriordb", _half, _dim, "NUTS, thinned", **_more)(_posteriordb(_path))


# -- chains with burn-in or bad mixing ---------------------------------------------------------------------------------


@_add("burn-in-gauss", SLOW, CHOOSE, 10, "random walk, burn-in left in")
def _burn_in_gauss(_: Path | None) -> Problem:
    """Starts 20 sds from the mean in every coordinate."""
    target = _gaussian(0.5 + 0.5 * np.eye(10))
    assert target.log_density is not None
    assert target.score is not None
    return walk(target.log_density, target.score, target.reference, lambda _: np.full(10, 20.0), 0.4)


@_add("burn-in-banana", SLOW, CONFIRM, 2, "random walk, burn-in left in")
def _burn_in_banana(_: Path | None) -> Problem:
    """Starts far out on one arm."""
    start = np.array([6.0, 30.0])
    reference = exact(_banana_log_density, _banana_score, _banana_draws).reference
    return walk(_banana_log_density, _banana_score, reference, lambda _: start, 0.5, thinning=5)


@_add("bad-mixing-gauss", SLOW, CHOOSE, 5, "random walk, effective size 25")
def _bad_gauss(_: Path | None) -> Problem:
    """Steps of 0.075 sds."""
    target = _gaussian(np.eye(5))
    assert target.log_density is not None
    assert target.score is not None
    return walk(target.log_density, target.score, target.reference, lambda rng: rng.normal(size=5), 0.075)


@_add("bad-mixing-logistic", SLOW, CONFIRM, 4, "random walk, effective size 25", needs=("jax", "numpyro"))
def _bad_logistic(_: Path | None) -> Problem:
    """Small steps; starts at a draw of NUTS."""
    density = _logistic_density(4, 60)
    log_density, score = jax_functions(density)

    def start(rng: np.random.Generator) -> Array:
        return run_nuts(density, 4, int(rng.integers(1000)), chains=1, draws=100, accept=0.8)[0, -1]

    return walk(log_density, score, nuts(density, 4).reference, start, 0.04)


@_add("slow-gauss-20", WIDE, CHOOSE, 20, "random walk, effective size 50")
def _slow_gauss(_: Path | None) -> Problem:
    """Equal correlations of 0.5."""
    factor = np.linalg.cholesky(0.5 + 0.5 * np.eye(20))
    target = _gaussian(factor @ factor.T)
    assert target.log_density is not None
    assert target.score is not None
    return walk(target.log_density, target.score, target.reference, lambda rng: factor @ rng.normal(size=20), 0.35)


@_add("slow-logistic-15", WIDE, CONFIRM, 15, "random walk, effective size 50", needs=("jax", "numpyro"))
def _slow_logistic(_: Path | None) -> Problem:
    """Starts at a draw of NUTS."""
    density = _logistic_density(15, 300)
    log_density, score = jax_functions(density)

    def start(rng: np.random.Generator) -> Array:
        return run_nuts(density, 15, int(rng.integers(1000)), chains=1, draws=100, accept=0.8)[0, -1]

    return walk(log_density, score, nuts(density, 15).reference, start, 0.03)


@_add("goodwin", "differential equation", CONFIRM, 4, "random walk")
def _goodwin(_: Path | None) -> Problem:
    """Rate constants of the Goodwin oscillator; the reference is from 16 other random walks."""
    from steinstream.targets import Goodwin
    from steinstream.targets.goodwin import LANES, TRUTH, log_densities

    target = Goodwin.simulated(seed=0, observations=600)

    def log_density(x: Array) -> Array:
        out = np.empty(len(x))
        log_densities((target.y,), np.ascontiguousarray(x.T), out)
        return out

    def score(x: Array) -> Array:
        return np.array([target.score(row) for row in x])

    def run(seed: int, chains: int, draws: int, thinning: int) -> Array:
        starts = np.tile(np.log(TRUTH), (chains, 1))
        pilot = run_walks(log_density, np.tile(np.log(TRUTH), (LANES, 1)), 0.01 * np.eye(4), -2, 4000, 1)[:, 2000:]
        factor = 1.2 * np.linalg.cholesky(np.cov(pilot.reshape(-1, 4).T))
        warm = run_walks(log_density, starts, factor, seed - 50, 1, 2000)[:, -1]
        return run_walks(log_density, warm, factor, seed, draws, thinning)

    return Problem(
        lambda seed: with_scores(run(seed, 1, 10_000, 2), log_density, score),
        lambda _: run(-1, LANES, 1500, 20).reshape(-1, 4),
        log_density,
        score,
    )


# -- a finished fit: 4 x 1000 draws of NUTS, reduced for posterior prediction ------------------------------------------

_FIT: dict[str, Any] = {"chains": 4, "draws": 1000}


@_add("fit-mixed", "finished fit", CHOOSE, 15, "NUTS, 4 x 1000", sizes=(50, 100, 200), scales=(14,))
def _fit_mixed(_: Path | None) -> Problem:
    """Logistic regression with varying intercepts: position (eta (12,), intercept, slope, log tau)."""
    import jax
    import jax.numpy as jnp

    rng = np.random.default_rng(14)
    group, x = np.repeat(np.arange(12), 15), rng.normal(size=180)
    y = rng.random(180) < 1 / (1 + np.exp(-(0.3 + 0.8 * rng.normal(size=12)[group] + 0.7 * x)))

    def log_density(q: Any) -> Any:
        eta, (intercept, slope, log_tau) = q[:12], q[12:]
        logits = intercept + jnp.exp(log_tau) * eta[group] + slope * x
        likelihood = jnp.sum(y * logits - jax.nn.softplus(logits))
        return likelihood - 0.5 * (jnp.sum(eta**2) + (intercept**2 + slope**2) / 4 + jnp.exp(2 * log_tau)) + log_tau

    return nuts(log_density, 15, accept=0.9, **_FIT)


@_add("fit-count", "finished fit", CONFIRM, 7, "NUTS, 4 x 1000", sizes=(50, 100, 200))
def _fit_count(_: Path | None) -> Problem:
    """Negative binomial regression: position (coefficients (6,), log dispersion)."""
    import jax.numpy as jnp
    from jax.scipy.special import gammaln

    x, coefficients, rng = regression_data(15, 120, 6)
    mean = np.exp(1 + x @ coefficients)
    y = rng.poisson(rng.gamma(2.0, mean / 2.0))

    def log_density(q: Any) -> Any:
        logs, log_shape = jnp.asarray(x) @ q[:6], q[6]
        shape = jnp.exp(log_shape)
        counts = gammaln(y + shape) - gammaln(shape) + shape * log_shape + y * logs
        likelihood = jnp.sum(counts - (y + shape) * jnp.logaddexp(logs, log_shape))
        return likelihood - 0.5 * (jnp.sum(q[:6] ** 2) / 2.5**2 + (log_shape - 0.5) ** 2)

    return nuts(log_density, 7, **_FIT)


# -- fresh targets: added after the settings were fixed ----------------------------------------------------------------


@_add("horseshoe", "regression", FRESH, 32, "NUTS", scales=(30, 31))
def _horseshoe(_: Path | None) -> Problem:
    """Sparse regression: position (coefficients (15,) in local scales, log local scales (15,), log tau, log sigma)."""
    import jax.numpy as jnp

    rng = np.random.default_rng(21)
    x = rng.normal(size=(60, 15))
    y = x[:, :3] @ np.array([2.0, -1.0, 0.5]) + rng.normal(size=60)

    def log_density(q: Any) -> Any:
        units, log_local, log_tau, log_sigma = q[:15], q[15:30], q[30], q[31]
        residuals = (y - jnp.asarray(x) @ (units * jnp.exp(log_local + log_tau))) / jnp.exp(log_sigma)
        likelihood = -0.5 * jnp.sum(residuals**2) - 60 * log_sigma
        local = jnp.sum(log_local - jnp.log1p(jnp.exp(2 * log_local)))  # half-Cauchy
        scales = log_tau - jnp.log1p(jnp.exp(2 * log_tau) / 0.1**2) + log_sigma - 0.5 * jnp.exp(2 * log_sigma) / 4
        return likelihood - 0.5 * jnp.sum(units**2) + local + scales

    return nuts(log_density, 32, accept=0.95)


@_add("ordered", "regression", FRESH, 10, "NUTS")
def _ordered(_: Path | None) -> Problem:
    """Ordered logistic regression: position (coefficients (6,), first threshold, logs of the gaps between four)."""
    import jax
    import jax.numpy as jnp

    x, coefficients, rng = regression_data(22, 150, 7)
    x, coefficients = x[:, 1:], 2 * coefficients[1:]
    latent = x @ coefficients + rng.logistic(size=150)
    y = np.searchsorted(np.array([-2.0, -0.5, 0.3, 2.0]), latent)

    def log_density(q: Any) -> Any:
        thresholds = q[6] + jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.exp(q[7:]))])
        ends = jnp.concatenate([jnp.array([-40.0]), thresholds, jnp.array([40.0])])
        linear = jnp.asarray(x) @ q[:6]
        upper, lower = ends[y + 1] - linear, ends[y] - linear
        # log of the difference of two logistic distribution functions
        likelihood = jax.nn.log_sigmoid(upper) + jax.nn.log_sigmoid(-lower) + jnp.log1p(-jnp.exp(lower - upper))
        prior = jnp.sum(q[:6] ** 2) / 2.5**2 + q[6] ** 2 / 3**2 + jnp.sum(q[7:] ** 2)
        return jnp.sum(likelihood) - 0.5 * prior

    return nuts(log_density, 10)


@_add("crossed-poisson", "hierarchical", FRESH, 27, "NUTS", scales=(25, 26))
def _crossed_poisson(_: Path | None) -> Problem:
    """Poisson with two crossed factors: position (effects (15,) and (8,), mean, slope, logs of both sds)."""
    import jax.numpy as jnp

    rng = np.random.default_rng(23)
    first, second = np.repeat(np.arange(15), 8), np.tile(np.arange(8), 15)
    x = rng.normal(size=120)
    effects = 0.5 * rng.normal(size=15)[first] + 0.3 * rng.normal(size=8)[second]
    y = rng.poisson(np.exp(0.7 + effects + 0.3 * x))

    def log_density(q: Any) -> Any:
        a, b, (mean, slope, log_sd_a, log_sd_b) = q[:15], q[15:23], q[23:]
        sd_a, sd_b = jnp.exp(log_sd_a), jnp.exp(log_sd_b)
        logs = mean + sd_a * a[first] + sd_b * b[second] + slope * x
        prior = jnp.sum(a**2) + jnp.sum(b**2) + (mean**2 + slope**2) / 4 + sd_a**2 + sd_b**2
        return jnp.sum(y * logs - jnp.exp(logs)) - 0.5 * prior + log_sd_a + log_sd_b

    return nuts(log_density, 27, accept=0.9)


@_add("copula", "skewed", FRESH, 12, "independent")
def _copula(_: Path | None) -> Problem:
    """Correlated sinh-arcsinh variables: heavy tails and skewness that increase with the number of the coordinate."""
    precision = np.linalg.inv(0.7 ** np.abs(np.subtract.outer(np.arange(12), np.arange(12))))
    factor = np.linalg.cholesky(np.linalg.inv(precision))
    skew, weight = np.linspace(-0.6, 0.6, 12), np.linspace(1.2, 0.8, 12)

    def to_normal(x: Array) -> Array:
        return np.asarray(weight * np.arcsinh(x) - skew)

    def log_density(x: Array) -> Array:
        u = to_normal(x)
        z = np.sinh(u)
        slopes = np.log(weight * np.cosh(u)) - 0.5 * np.log1p(x**2)
        return np.asarray(slopes.sum(1) - 0.5 * np.einsum("ni,ij,nj->n", z, precision, z))

    def score(x: Array) -> Array:
        u = to_normal(x)
        slope = weight / np.sqrt(1 + x**2)
        return np.asarray((np.tanh(u) - np.cosh(u) * (np.sinh(u) @ precision)) * slope - x / (1 + x**2))

    def draw(rng: np.random.Generator, n: int) -> Array:
        return np.asarray(np.sinh((np.arcsinh(rng.normal(size=(n, 12)) @ factor.T) + skew) / weight))

    return exact(log_density, score, draw)


_RADIUS, _THICKNESS, _BENT = 2.0, 0.4, 0.4


def _ring_log_density(x: Array) -> Array:
    radius = np.hypot(x[:, 0], x[:, 1])
    others = x[:, 2:] - _BENT * (x[:, :1] ** 2 - x[:, 1:2] ** 2)
    return np.asarray(-0.5 * ((radius - _RADIUS) / _THICKNESS) ** 2 - np.log(radius) - 0.5 * (others**2).sum(1))


def _ring_score(x: Array) -> Array:
    radius = np.hypot(x[:, 0], x[:, 1])
    others = x[:, 2:] - _BENT * (x[:, :1] ** 2 - x[:, 1:2] ** 2)
    along = -(radius - _RADIUS) / _THICKNESS**2 / radius - 1 / radius**2
    bent = 2 * _BENT * others.sum(1)
    return np.column_stack([x[:, 0] * (along + bent), x[:, 1] * (along - bent), -others])


def _ring_draws(rng: np.random.Generator, n: int) -> Array:
    """A radius below 0 has a probability of 3e-7; it is the same position with the opposite angle."""
    radius, angle = _RADIUS + _THICKNESS * rng.normal(size=n), rng.uniform(0, 2 * np.pi, size=n)
    plane = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    bend = _BENT * (plane[:, :1] ** 2 - plane[:, 1:] ** 2)
    return np.concatenate([plane, bend + rng.normal(size=(n, 4))], axis=1)


@_add("burn-in-ring", SLOW, FRESH, 6, "random walk, burn-in left in")
def _burn_in_ring(_: Path | None) -> Problem:
    """A warped ring; starts far outside."""
    reference = exact(_ring_log_density, _ring_score, _ring_draws).reference
    start = np.array([20.0, 10.0, *[-60.0] * 4])
    return walk(_ring_log_density, _ring_score, reference, lambda _: start, 0.5, thinning=5)


@_add("bad-mixing-log-gamma", SLOW, FRESH, 8, "random walk, effective size 35")
def _bad_log_gamma(_: Path | None) -> Problem:
    """Logarithms of gamma variables, shapes 1 to 3; small steps; starts at a draw of the target."""
    shapes = np.linspace(1, 3, 8)

    def draw(rng: np.random.Generator, n: int) -> Array:
        return np.asarray(np.log(rng.gamma(shapes, size=(n, 8))))

    target = exact(lambda x: (shapes * x - np.exp(x)).sum(1), lambda x: shapes - np.exp(x), draw)
    assert target.log_density is not None
    assert target.score is not None
    return walk(target.log_density, target.score, target.reference, lambda rng: draw(rng, 1)[0], 0.06)
