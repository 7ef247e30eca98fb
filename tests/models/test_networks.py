"""Networks against plain numpy, and ensembles against a loop over their members."""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.conftest import member, noisy, numpy_mlp, quick_jit
from ubp2.models import networks
from ubp2.models.networks import MLP, apply_members, apply_own, by_blocks, ensemble, mish, simnorm

SIZES = [4, 16, 16, 2]
make = quick_jit(lambda key: ensemble(3, lambda k: MLP(SIZES, key=k), key))
call = quick_jit(lambda network, x: network(x))


def inputs(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.fixture(scope="module")
def members() -> MLP:
    """Three members with random biases, scales and offsets too."""
    return noisy(make(jax.random.key(0)), 0.3)


def test_mish_equals_its_definition() -> None:
    """x tanh(softplus(x)), where the exponential overflows and where it vanishes too."""
    x = np.concatenate([np.linspace(-30, 30, 2001), [-1e4, -200.0, -88.0, 19.99, 20.01, 88.0, 200.0, 1e4]])
    expected = x * np.tanh(np.logaddexp(0.0, x))
    np.testing.assert_allclose(quick_jit(mish)(x.astype(np.float32)), expected, rtol=2e-5, atol=1e-7)


def test_mish_has_the_right_slope_far_out() -> None:
    """One to the right, zero to the left, and 0.6 at the origin."""
    slopes = quick_jit(jax.vmap(jax.grad(mish)))(jnp.array([-1e4, -50.0, 0.0, 50.0, 1e4]))
    np.testing.assert_allclose(slopes, [0.0, 0.0, 0.6, 1.0, 1.0], atol=1e-6)


def test_simnorm_is_a_softmax_a_group() -> None:
    """Groups of eight sum to one each and do not see each other."""
    x = 3 * inputs(5, 16)
    groups = np.exp(x.astype(np.float64)).reshape(5, 2, 8)
    expected = (groups / groups.sum(-1, keepdims=True)).reshape(5, 16)
    np.testing.assert_allclose(quick_jit(simnorm)(x), expected, rtol=1e-5)


def test_mlp_equals_numpy(members: MLP) -> None:
    """The order and the formula of linear map, LayerNorm and Mish; any leading axes."""
    x, network = inputs(3, 5, 4), member(members, 1)
    np.testing.assert_allclose(call(network, x), numpy_mlp(network, x), rtol=1e-4, atol=1e-5)


def test_layer_norm_takes_out_scale_and_shift(members: MLP) -> None:
    """A first layer ten times as large gives the same output; ten times the LayerNorm's own scale does not."""
    x, network = inputs(3, 5, 4), member(members, 0)
    first = (network.weights[0] * 10, network.biases[0] * 10)
    larger = eqx.tree_at(lambda m: (m.weights[0], m.biases[0]), network, first)
    np.testing.assert_allclose(call(larger, x), call(network, x), atol=1e-3)
    louder = eqx.tree_at(lambda m: m.scales[0], network, network.scales[0] * 10)
    assert np.abs(call(louder, x) - np.asarray(call(network, x))).max() > 0.1


def test_members_on_one_input_equal_a_loop(members: MLP) -> None:
    """apply_members is every member on the same input."""
    x = inputs(3, 5, 4)
    together = quick_jit(apply_members)(members, x)
    assert together.shape == (3, 3, 5, 2)
    np.testing.assert_allclose(together, [numpy_mlp(member(members, i), x) for i in range(3)], rtol=1e-4, atol=1e-5)


def test_members_on_their_own_inputs_equal_a_loop(members: MLP) -> None:
    """apply_own gives member i the i-th input and nothing else."""
    x = inputs(3, 5, 4)
    together = quick_jit(apply_own)(members, x)
    np.testing.assert_allclose(together, [numpy_mlp(member(members, i), x[i]) for i in range(3)], rtol=1e-4, atol=1e-5)


def test_an_ensemble_is_separately_initialised_members() -> None:
    """Member i is the network that the i-th key makes, and no two are alike."""
    stacked, keys = make(jax.random.key(5)), jax.random.split(jax.random.key(5), 3)
    alone = quick_jit(lambda key: MLP(SIZES, key=key))
    for i in range(3):
        for a, b in zip(jax.tree.leaves(member(stacked, i)), jax.tree.leaves(alone(keys[i])), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6)
    weights = np.asarray(stacked.weights[0])
    for i, j in itertools.combinations(range(3), 2):
        assert np.abs(weights[i] - weights[j]).mean() > 0.1


def test_output_scale_shrinks_the_output_alone() -> None:
    """Zero silences a fresh network; a half halves it."""
    scaled = quick_jit(lambda s: MLP(SIZES, key=jax.random.key(7), output_scale=s)(jnp.ones((5, 4))))
    whole, half, none = (np.asarray(scaled(s)) for s in (1.0, 0.5, 0.0))
    np.testing.assert_allclose(half, whole / 2, rtol=1e-5, atol=1e-6)
    assert not none.any() and np.abs(whole).max() > 0.1


@pytest.mark.parametrize("rows", [40, 41])
def test_rows_in_blocks_are_the_rows_at_once(members: MLP, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(networks, "CPU_BLOCK", 8)
    x = jnp.asarray(inputs(2, rows // 2 + 1, 4))
    found = by_blocks(lambda own: apply_members(members, own), x)
    np.testing.assert_allclose(found, apply_members(members, x), rtol=1e-5, atol=1e-6)
