"""The fused kernels against the plain versions, in the interpreter of Pallas and as programs for a GPU."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

from ubp2.models import kernels, networks

WIDTH, MEMBERS = 128, 3
# Both versions compute in float32 and round once to bfloat16, which has 8 binary digits: they may differ by one unit
# of the last digit where the float32 numbers lie on a boundary.
ROUNDING = 2.0**-7


def layer(rows: int) -> tuple[Array, Array, Array]:
    """Outputs of a product [N, E, W], vectors [E, 3, W] and a change of the layer's outputs [E, N, W]."""
    rng = np.random.default_rng(rows)
    pre = jnp.array(2 * rng.normal(size=(rows, MEMBERS, WIDTH)), jnp.bfloat16)
    vectors = np.stack([0.3 * rng.normal(size=(MEMBERS, WIDTH)) + shift for shift in (0.0, 1.0, 0.0)], axis=1)
    return pre, jnp.array(vectors, jnp.float32), jnp.array(rng.normal(size=(MEMBERS, rows, WIDTH)), jnp.bfloat16)


def close(fused: Array, plain: Array) -> None:
    np.testing.assert_allclose(*(np.asarray(x, np.float32) for x in (fused, plain)), rtol=ROUNDING, atol=ROUNDING)


@pytest.mark.parametrize("rows", [1, 24, 32, 500])  # also rows that do not fill a tile
def test_fused_equals_plain(rows: int) -> None:
    pre, vectors, change = layer(rows)
    close(kernels.norm_mish(pre, vectors, interpret=True), networks.norm_mish_light(pre, vectors))
    back, sums = kernels.norm_mish_gradient(pre, vectors, change, interpret=True)
    plain_back, plain_sums = jax.vjp(networks.norm_mish_light, pre, vectors)[1](change)
    close(back, plain_back)
    np.testing.assert_allclose(sums, plain_sums, rtol=1e-4, atol=1e-4)


def test_units_that_are_all_alike_are_no_division_by_zero() -> None:
    """A large mean and no variance: the difference of their squares is rounding, of either sign."""
    pre, vectors, change = layer(8)
    pre = jnp.full_like(pre, 1000.0) + jnp.arange(8, dtype=pre.dtype)[:, None, None] * 8
    vectors = vectors.at[:, 0].set(0.0)
    for part in (
        kernels.norm_mish(pre, vectors, interpret=True),
        *kernels.norm_mish_gradient(pre, vectors, change, interpret=True),
    ):
        assert np.isfinite(np.asarray(part, np.float32)).all()


@pytest.mark.parametrize("value", [-60.0, 60.0])
def test_large_activations_do_not_overflow(value: float) -> None:
    """Mish is the identity far above zero and zero far below, also where exp(x)^2 is infinite."""
    pre, vectors, change = layer(8)
    vectors = vectors.at[:, 1].set(0.0).at[:, 2].set(value)
    out = np.asarray(kernels.norm_mish(pre, vectors, interpret=True), np.float32)
    np.testing.assert_allclose(out, max(value, 0.0), atol=1e-6)
    for part in kernels.norm_mish_gradient(pre, vectors, change, interpret=True):
        assert np.isfinite(np.asarray(part, np.float32)).all()


def test_the_gradient_is_that_of_the_definition() -> None:
    """The gradient by hand, in float32, against automatic differentiation of LayerNorm and x tanh(softplus(x))."""

    def definition(pre: Array, vectors: Array) -> Array:
        raised = pre + vectors[:, 0]
        centred = raised - raised.mean(-1, keepdims=True)
        x = centred / jnp.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * vectors[:, 1] + vectors[:, 2]
        return jnp.moveaxis(x * jnp.tanh(jax.nn.softplus(x)), 1, 0)

    pre, vectors, change = layer(16)
    pre, change = pre.astype(jnp.float32), change.astype(jnp.float32)
    ours = jax.vjp(networks.norm_mish_light, pre, vectors)[1](change)
    for own, theirs in zip(ours, jax.vjp(definition, pre, vectors)[1](change), strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-4, atol=1e-4)


def lowered(dtype: jnp.dtype, platform: str, width: int = WIDTH, rows: int = 16) -> str:
    """The program of one layer and its gradient, compiled for a platform that need not be here."""
    pre = jax.ShapeDtypeStruct((2, rows, MEMBERS, width), dtype)  # two seeds
    vectors = jax.ShapeDtypeStruct((2, MEMBERS, 3, width), jnp.float32)
    change = jax.ShapeDtypeStruct((2, MEMBERS, rows, width), dtype)

    def both(pre: Array, vectors: Array, change: Array) -> tuple[Array, tuple[Array, Array]]:
        out, back = jax.vjp(networks.norm_mish_light, pre, vectors)
        return out, back(change)

    return jax.jit(jax.vmap(both)).trace(pre, vectors, change).lower(lowering_platforms=(platform,)).as_text()


def test_the_version_is_chosen_by_platform_type_and_width() -> None:
    """Fused on a GPU in bfloat16 at a width that is a power of two; plain in all other cases, and without rows."""
    assert lowered(jnp.bfloat16, "cuda").count("triton") >= 2
    assert "triton" not in lowered(jnp.bfloat16, "cpu")
    assert "triton" not in lowered(jnp.float32, "cuda")
    assert "triton" not in lowered(jnp.bfloat16, "cuda", width=96)
    assert "triton" not in lowered(jnp.bfloat16, "cuda", rows=0)
