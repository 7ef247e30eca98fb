"""Eq. 2 to 6 with numbers worked by hand, and the two-hot scale of values."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import quick_jit
from ubp2.models import heads, losses

LOG3 = math.log(3.0)  # sigmoid(log 3) = 3/4
FULL = jnp.ones((2, 2))


def test_consistency_is_the_mean_squared_difference() -> None:
    """Eq. 3: squared distances 5, 9, 1 and 25 of two coordinates, a mean over time, sequences and coordinates."""
    actual = jnp.array([[[1.0, 2.0], [3.0, 0.0]], [[0.0, 1.0], [3.0, 4.0]]])
    assert float(losses.consistency_loss(jnp.zeros((2, 2, 2)), actual, FULL, 1.0)) == pytest.approx(40 / 4 / 2)


def test_consistency_mask_and_rho() -> None:
    """The masked state is out of sum and count, and the second step weighs rho: (5 + 9 + 0.5) / 3 / 2."""
    actual = jnp.array([[[1.0, 2.0], [3.0, 0.0]], [[0.0, 1.0], [100.0, 100.0]]])
    mask = jnp.array([[1.0, 1.0], [1.0, 0.0]])
    assert float(losses.consistency_loss(jnp.zeros((2, 2, 2)), actual, mask, 0.5)) == pytest.approx(14.5 / 3 / 2)


def test_consistency_does_not_grow_with_the_size_of_the_state() -> None:
    """TD-MPC2's weight of 20 belongs to a mean: an error of 1 in each of 512 coordinates costs 1."""
    assert float(losses.consistency_loss(jnp.ones((2, 2, 512)), jnp.zeros((2, 2, 512)), FULL, 1.0)) == 1.0


def test_everything_masked_is_zero_and_not_nan() -> None:
    """A batch without a single real decision costs nothing."""
    assert float(losses.consistency_loss(jnp.ones((2, 2, 3)), jnp.zeros((2, 2, 3)), 0 * FULL, 1.0)) == 0.0


def test_preference_loss_with_a_tie_and_weights() -> None:
    """Eq. 4: P = 3/4, 1/2, 1/4 for left; labels left, tie, left; the third counts twice, a fourth not at all."""
    logits, label = jnp.array([LOG3, 0.0, -LOG3, 9.0]), jnp.array([1.0, 0.5, 1.0, 0.0])
    loss, accuracy = losses.preference_loss(logits, label, jnp.array([1.0, 1.0, 2.0, 0.0]))
    assert float(loss) == pytest.approx((math.log(4 / 3) + math.log(2) + 2 * math.log(4)) / 4, rel=1e-5)
    assert float(accuracy) == pytest.approx(1 / 3)  # the tie does not count


def test_a_tie_pulls_towards_even_odds() -> None:
    """Eq. 4 with y = 1/2: the gradient is P - 1/2."""

    def loss(logit: jax.Array) -> jax.Array:
        return losses.preference_loss(logit[None], jnp.array([0.5]), jnp.ones(1))[0]

    slopes = jax.vmap(jax.grad(loss))(jnp.array([LOG3, 0.0, -LOG3]))
    np.testing.assert_allclose(slopes, [0.25, 0.0, -0.25], atol=1e-6)


def test_preference_loss_without_labels_is_zero() -> None:
    """Weights of zero, as an empty buffer gives them, leave neither loss nor gradient."""
    loss, slope = jax.value_and_grad(lambda x: losses.preference_loss(x, jnp.ones(3), jnp.zeros(3))[0])(jnp.ones(3))
    assert float(loss) == 0.0 and not slope.any()


def test_regression_is_the_gaussian_likelihood() -> None:
    """Half an error of one standard deviation squared, plus log std; the masked entry is out."""
    mean, log_std = jnp.array([[0.5], [0.0]]), jnp.log(jnp.array([[0.5], [2.0]]))
    target, mask = jnp.array([[1.0], [9.0]]), jnp.array([[1.0], [0.0]])
    assert float(losses.regression_loss(mean, log_std, target, mask)) == pytest.approx(0.5 + math.log(0.5), rel=1e-5)


def test_td_target_stops_at_a_terminal_state() -> None:
    """1 + 0.9 * 10, and 1 alone where the task ended."""
    target = losses.td_target(jnp.ones((2, 1)), jnp.array([[False], [True]]), jnp.full((2, 1), 10.0), 0.9)
    np.testing.assert_allclose(target, [[10.0], [1.0]])


def test_value_loss_averages_members_and_discounts_time() -> None:
    """Eq. 5: members' squared errors (1, 9) then (4, 4) average to 5 and 4; (5 + 0.5 * 4) / 2."""
    output = jnp.array([1.0, 2.0, 3.0, 6.0]).reshape(2, 2, 1, 1)
    target = jnp.array([[0.0], [4.0]])
    assert float(losses.value_loss("scalar", output, target, jnp.ones((2, 1)), 0.5)) == pytest.approx(3.5)
    assert float(losses.value_loss("scalar", output, target, jnp.array([[1.0], [0.0]]), 0.5)) == pytest.approx(5.0)


def test_policy_loss_is_value_plus_entropy_discounted() -> None:
    """Eq. 6: -((1 + 0.1) + 0.5 (2 - 0.3)) / 2; masked steps are out of sum and count."""
    value, log_density = jnp.array([[1.0], [2.0]]), jnp.array([[-1.0], [3.0]])
    assert float(losses.policy_loss(value, log_density, jnp.ones((2, 1)), 0.5, 0.1)) == pytest.approx(-0.975)
    assert float(losses.policy_loss(value, log_density, jnp.array([[1.0], [0.0]]), 0.5, 0.1)) == pytest.approx(-1.1)


def test_autotune_is_log_lambda_times_the_mean_gap() -> None:
    """Eq. 2: gaps 1 and 2 at log lambda 2 cost 3; the slope 1.5 makes descent lower lambda."""
    current, target = jnp.array([1.0, 3.0]), jnp.array([0.0, 1.0])
    loss, slope = jax.value_and_grad(losses.autotune_loss)(jnp.array(2.0), current, target)
    assert (float(loss), float(slope)) == (3.0, 1.5)


def test_two_hot_by_hand() -> None:
    """Bins are 0.2 apart on the symlog scale: symlog(x) = 0.05 lies a quarter of the way from bin 50 to bin 51."""
    weights = heads.two_hot(jnp.array(math.expm1(0.05)))
    assert weights.shape == (101,) and jnp.nonzero(weights)[0].tolist() == [50, 51]
    np.testing.assert_allclose(weights[50:52], [0.75, 0.25], atol=1e-4)


@pytest.mark.parametrize("value", [-20_000.0, -1000.0, -1.0, 0.0, 0.3, 7.7, 22_000.0])
def test_two_hot_round_trip(value: float) -> None:
    """A distribution that is the two-hot target decodes to the value."""
    weights = heads.two_hot(jnp.array([value]))
    assert float(weights.sum()) == pytest.approx(1.0, abs=1e-5)
    assert heads.decode_value("twohot", jnp.log(weights)).tolist() == pytest.approx([value], rel=1e-3, abs=1e-4)


def test_two_hot_beyond_the_scale_is_its_end() -> None:
    """The scale ends at symexp(10): farther values take the last bin."""
    assert heads.two_hot(jnp.array([1e9, -1e9])).argmax(-1).tolist() == [100, 0]
    assert heads.two_hot(jnp.array([1e9, -1e9])).max(-1).tolist() == [1.0, 1.0]


def test_two_hot_error_is_least_at_the_target() -> None:
    """Cross-entropy: log 101 when ignorant, and no gradient where softmax equals the target."""
    target, mask = jnp.array([[2.0]]), jnp.ones((1, 1))
    slope = quick_jit(jax.value_and_grad(lambda output: losses.value_loss("twohot", output, target, mask, 0.9)))
    ignorant, steep = slope(np.zeros((1, 1, 1, 101), np.float32))
    assert float(ignorant) == pytest.approx(math.log(101), rel=1e-5) and np.abs(steep).max() > 0.1
    _, flat = slope(np.log(np.asarray(heads.two_hot(target)) + 1e-8)[None])
    assert np.abs(flat).max() < 1e-4


def test_symlog_and_symexp_are_inverse() -> None:
    """symlog(e - 1) = 1, odd, and symexp undoes it."""
    x = jnp.array([-100.0, -math.e + 1, 0.0, 1e-3, math.e - 1])
    np.testing.assert_allclose(heads.symlog(x)[jnp.array([1, 2, 4])], [-1.0, 0.0, 1.0], atol=1e-6)
    np.testing.assert_allclose(heads.symexp(heads.symlog(x)), x, rtol=1e-5)
