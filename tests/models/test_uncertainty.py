"""Uncertainty measures against numerical integration and numbers worked by hand."""

from __future__ import annotations

import math

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from tests.conftest import quick_jit
from ubp2.models.uncertainty import disagreement, jensen_renyi, spread

ENSEMBLES = {  # means, standard deviations
    "one member": ([0.3], [0.5]),
    "apart": ([0.0, 2.0], [1.0, 1.0]),
    "five near": ([0.1, -0.2, 0.0, 0.3, 0.15], [0.4, 0.4, 0.4, 0.4, 0.4]),
    "five mixed": ([1.0, -1.0, 0.2, 0.0, -0.4], [0.14, 0.3, 1.0, 2.7, 0.5]),
    "noise differs": ([0.0, 0.0], [0.135, 2.7]),
}

compiled = quick_jit(jensen_renyi)


def integrated(mean: list[float], std: list[float]) -> float:
    """H2(mixture) - mean H2(member) with H2(p) = -log int p^2, every integral done numerically."""
    low, high = min(mean) - 12 * max(std), max(mean) + 12 * max(std)

    def entropy(members: list[tuple[float, float]]) -> float:
        def square(x: float) -> float:
            return float(np.mean([norm.pdf(x, m, s) for m, s in members]) ** 2)

        return -math.log(quad(square, low, high, points=sorted(set(mean)), limit=200)[0])

    members = list(zip(mean, std, strict=True))
    return entropy(members) - float(np.mean([entropy([member]) for member in members]))


def divergence(mean: list[float], std: list[float]) -> float:
    return float(compiled(np.array(mean, np.float32), np.log(np.array(std, np.float32))))


@pytest.mark.parametrize("name", ENSEMBLES)
def test_jensen_renyi_equals_the_integral(name: str) -> None:
    """The closed form is the divergence of the definition, clipped at zero."""
    mean, std = ENSEMBLES[name]
    assert divergence(mean, std) == pytest.approx(max(integrated(mean, std), 0.0), abs=2e-5)


def test_jensen_renyi_by_hand() -> None:
    """Two unit Gaussians two apart: -log((1 + e^-1) / 2)."""
    assert divergence([0.0, 2.0], [1.0, 1.0]) == pytest.approx(0.379885, abs=1e-5)


def test_jensen_renyi_is_clipped_where_it_is_negative() -> None:
    """Equal means with unequal noise have a negative divergence; as a bonus it is zero."""
    mean, std = ENSEMBLES["noise differs"]
    assert integrated(mean, std) < -0.1
    assert divergence(mean, std) == 0.0


@pytest.mark.parametrize("log_std", [-30.0, -44.0, -80.0, -1000.0])
def test_jensen_renyi_of_members_without_noise(log_std: float) -> None:
    """Their variance is no float32: two of three that agree leave -log(5/9), and all that agree nothing."""
    noise = np.full(3, log_std, np.float32)
    assert float(compiled(np.array([0.0, 0.0, 1.0], np.float32), noise)) == pytest.approx(-math.log(5 / 9), rel=1e-3)
    assert float(compiled(np.full(3, 0.4, np.float32), noise)) == pytest.approx(0.0, abs=1e-3)


def test_jensen_renyi_of_equal_members_is_zero() -> None:
    """Members that agree in mean and noise have nothing to tell."""
    assert divergence([0.7] * 5, [0.3] * 5) == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("members", [2, 5])
def test_jensen_renyi_reaches_log_members_and_no_more(members: int) -> None:
    """Members far apart reach the bound log E, and no random ensemble passes it."""
    far = [1000.0 * i for i in range(members)]
    assert divergence(far, [0.1] * members) == pytest.approx(math.log(members), abs=1e-5)
    rng = np.random.default_rng(0)
    many = compiled(jnp.array(rng.normal(size=(members, 500)) * 3), jnp.array(rng.uniform(-2, 1, (members, 500))))
    assert float(jnp.max(many)) <= math.log(members) + 1e-5 and float(jnp.min(many)) >= 0.0


def test_jensen_renyi_treats_points_apart() -> None:
    """Leading axes after the members are points of their own."""
    rng = np.random.default_rng(1)
    mean, log_std = rng.normal(size=(3, 4, 2)), rng.uniform(-1, 0, (3, 4, 2))
    whole = compiled(jnp.array(mean), jnp.array(log_std))
    alone = [
        [divergence(mean[:, i, j].tolist(), np.exp(log_std[:, i, j]).tolist()) for j in range(2)] for i in range(4)
    ]
    np.testing.assert_allclose(whole, alone, atol=1e-5)


def test_disagreement_by_hand() -> None:
    """Members (0, 0) and (2, 4) have deviations 1 and 2: their norm, for each point on its own."""
    members = jnp.array([[[0.0, 0.0], [1.0, 1.0]], [[2.0, 4.0], [1.0, 1.0]]])
    np.testing.assert_allclose(disagreement(members), [math.sqrt(5.0), 0.0], rtol=1e-6)


def test_disagreement_is_the_norm_over_dimensions() -> None:
    """Coordinates on which members agree add nothing; the same numbers four times over count twice."""
    members = np.random.default_rng(0).normal(size=(5, 7, 4))
    alone = np.linalg.norm(members.std(axis=0), axis=-1)
    np.testing.assert_allclose(disagreement(jnp.array(np.pad(members, ((0, 0), (0, 0), (0, 30))))), alone, rtol=1e-5)
    np.testing.assert_allclose(disagreement(jnp.array(np.tile(members, (1, 1, 4)))), 2 * alone, rtol=1e-5)


def test_spread_by_hand() -> None:
    """1, 3, 5 have standard deviation sqrt(8/3); equal members have none."""
    values = jnp.array([[1.0, 2.0], [3.0, 2.0], [5.0, 2.0]])
    np.testing.assert_allclose(spread(values), [math.sqrt(8 / 3), 0.0], rtol=1e-6)
