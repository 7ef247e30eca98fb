"""Beyond the paper: deep ensembles beside the exact posterior, on the same observations of random functions.

The paper views disagreement and the Jensen-Renyi divergence as samples of what a Gaussian process gives in closed
form. Here both see the same data: two stretches of the line with a gap between them and nothing on the right. The
networks are those of the world model, with a Gaussian head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy import ndarray

from ubp2.evaluation.rollout import rank_correlation
from ubp2.models.losses import regression_loss
from ubp2.models.networks import MLP, apply_members, ensemble
from ubp2.models.uncertainty import jensen_renyi, spread
from ubp2.theory.findings import Findings
from ubp2.theory.functions import random_member
from ubp2.theory.gp import GP
from ubp2.theory.kernels import Kernel
from ubp2.theory.options import Ensembles

__all__ = ["VARIANTS", "Prediction", "Problem", "exact", "fit", "problem", "study"]

KERNEL, NORM, NOISE = Kernel("rbf", 0.25), 2.0, 0.1
GRID = np.linspace(-1, 1, 161)[:, None]
REGIONS = {"data": ((-0.9, -0.4), (0.1, 0.5)), "gap": ((-0.35, 0.05),), "outside": ((0.6, 1.0),)}
_WIDTH, _RATE, _LOG_STD = 64, 3e-3, (-4.0, 1.0)


class Variant(NamedTuple):
    """What makes members differ besides their initial parameters."""

    bootstrap: bool = False  # each sees the data in other proportions
    prior: float = 0.0  # scale of a random function that is added to each and never learned


VARIANTS = {"ensemble": Variant(), "bootstrap": Variant(bootstrap=True), "prior functions": Variant(prior=1.0)}


class Problem(NamedTuple):
    """Observations of a random function, and its values on the grid."""

    x: ndarray  # [n, 1]
    y: ndarray  # [n]
    truth: ndarray  # [grid]


class Prediction(NamedTuple):
    """On the grid: mean, epistemic deviation, and the divergence where there is one."""

    mean: ndarray
    std: ndarray
    divergence: ndarray | None


def problem(rng: np.random.Generator, points: int) -> Problem:
    """Half of the points on each stretch of data."""
    truth = random_member(rng, KERNEL, 1, NORM)
    halves = np.array_split(np.arange(points), 2)
    stretches = [rng.uniform(low, high, len(own)) for (low, high), own in zip(REGIONS["data"], halves, strict=True)]
    x = np.concatenate(stretches)[:, None]
    return Problem(x, truth(x)[:, 0] + NOISE * rng.standard_normal(points), truth(GRID)[:, 0])


def exact(own: Problem) -> Prediction:
    """The posterior of the Gaussian process."""
    gp = GP(KERNEL, NOISE**2, GRID)
    gp.add(own.x, own.y[:, None])
    mean, std = gp.posterior()
    return Prediction(mean[:, 0], std, None)


def _read(members: MLP, priors: MLP, scale: float, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Mean and log deviation [E, n] of every member."""
    out = apply_members(members, x)
    low, high = _LOG_STD
    return out[..., 0] + scale * apply_members(priors, x)[..., 0], low + (high - low) * jax.nn.sigmoid(out[..., 1])


def fit(problems: list[Problem], variant: Variant, members: int, updates: int, seed: int) -> list[Prediction]:
    """An ensemble for each problem, all in one program, by Adam on the negative log likelihood of all data."""
    keys = jax.random.split(jax.random.key(seed), len(problems))
    x = jnp.asarray(np.stack([own.x for own in problems]), jnp.float32)
    y = jnp.asarray(np.stack([own.y for own in problems]), jnp.float32)
    optimiser = optax.adam(_RATE)

    def one(key: jax.Array, x: jax.Array, y: jax.Array) -> tuple[jax.Array, jax.Array]:
        start, prior_key, weight_key = jax.random.split(key, 3)

        def make(key: jax.Array) -> MLP:
            return MLP([1, _WIDTH, _WIDTH, 2], key=key)

        networks, priors = ensemble(members, make, start), ensemble(members, make, prior_key)
        weight = jnp.ones((members, len(x)))
        if variant.bootstrap:
            weight = jax.random.exponential(weight_key, weight.shape)

        def loss(networks: MLP) -> jax.Array:
            mean, log_std = _read(networks, priors, variant.prior, x)
            return jnp.sum(jax.vmap(regression_loss, (0, 0, None, 0))(mean, log_std, y, weight))

        def step(carry: Any, _: None) -> tuple[Any, None]:
            networks, state = carry
            change, state = optimiser.update(jax.grad(loss)(networks), state)
            return (eqx.apply_updates(networks, change), state), None

        begin: Any = networks  # optax knows pytrees by other names
        (networks, _), _ = jax.lax.scan(step, (begin, optimiser.init(begin)), None, updates)
        return _read(networks, priors, variant.prior, jnp.asarray(GRID, jnp.float32))

    mean, log_std = jax.jit(jax.vmap(one))(keys, x, y)
    return [
        Prediction(*(np.asarray(part, float) for part in (m.mean(axis=0), spread(m), jensen_renyi(m, s))))
        for m, s in zip(mean, log_std, strict=True)
    ]


def _within(region: str) -> ndarray:
    at = GRID[:, 0]
    return np.any([(low <= at) & (at <= high) for low, high in REGIONS[region]], axis=0)


def _rows(label: str, problems: list[Problem], predictions: list[Prediction]) -> list[dict[str, str | float]]:
    """Error and deviation in each region."""
    truth, mean, std = (
        np.array(own) for own in ([p.truth for p in problems], *zip(*[p[:2] for p in predictions], strict=True))
    )
    rows = []
    for region in REGIONS:
        at = _within(region)
        error, deviation = (truth - mean)[:, at], std[:, at]
        divergences = [p.divergence[at] for p in predictions if p.divergence is not None]
        rows.append(
            {"model": label, "region": region}
            | {"error": float(np.sqrt(np.mean(error**2))), "deviation": float(np.sqrt(np.mean(deviation**2)))}
            | {"error_/_deviation": float(np.sqrt(np.mean(error**2) / np.mean(deviation**2)))}
            | {"within_2": float(np.mean(np.abs(error) <= 2 * deviation))}
            | {"needed_beta": float(np.quantile((np.abs(error) / np.maximum(deviation, 1e-9)).max(axis=1), 0.9))}
            | {"JRD": float(np.mean(divergences)) if divergences else None}
        )
    return rows


def _ranks(label: str, problems: list[Problem], own: list[Prediction], gps: list[Prediction]) -> dict[str, Any]:
    """Rank correlation over the grid of each measure with the exact deviation and with the error."""

    def mean_rank(pairs: list[tuple[ndarray, ndarray]]) -> float:
        return float(np.mean([rank_correlation(a, b) for a, b in pairs]))

    errors = [np.abs(p.truth - q.mean) for p, q in zip(problems, own, strict=True)]
    deviations = [q.std for q in own]
    divergences = [q.divergence for q in own if q.divergence is not None]
    exacts = [q.std for q in gps]
    return {
        "model": label,
        "deviation_with_exact": mean_rank(list(zip(deviations, exacts, strict=True))),
        "deviation_with_error": mean_rank(list(zip(deviations, errors, strict=True))),
        "JRD_with_exact": mean_rank(list(zip(divergences, exacts, strict=True))) if divergences else None,
        "JRD_with_error": mean_rank(list(zip(divergences, errors, strict=True))) if divergences else None,
    }


def study(options: Ensembles) -> Findings:
    """Tables by region, and the first function as a picture."""
    problems = [problem(np.random.default_rng([options.seed, i]), options.points) for i in range(options.repeats)]
    gps = [exact(own) for own in problems]
    found = {"exact posterior": gps}
    for name, variant in VARIANTS.items():
        found[name] = fit(problems, variant, options.members, options.updates, options.seed)
    regions = [row for label, own in found.items() for row in _rows(label, problems, own)]
    ranks = [_ranks(label, problems, own, gps) for label, own in found.items()]
    first = problems[0]
    curves: dict[str, Any] = {"x": first.x[:, 0].tolist(), "y": first.y.tolist(), "grid": GRID[:, 0].tolist()}
    curves["truth"] = first.truth.tolist()
    curves["models"] = {
        label: {"mean": own[0].mean.tolist(), "std": own[0].std.tolist()}
        | ({} if own[0].divergence is None else {"divergence": own[0].divergence.tolist()})
        for label, own in found.items()
    }
    notes = [
        f"{options.repeats} functions of norm {NORM:g}, {options.points} observations with noise {NOISE:g}; "
        f"{options.members} members, {options.updates} updates. error and deviation: root mean squares; error / "
        "deviation above 1: overconfident. needed beta: width that covers the whole region for 9 of 10 functions. "
        "JRD: mean divergence, at most log(members)."
    ]
    tables = {"by region": regions, "rank correlations over the line": ranks}
    return Findings("ensembles", tables, curves, notes)
