"""Our DINOv2 against the reference implementation, whose weights and outputs benchmarks/dinov2_golden.py wrote down."""

from __future__ import annotations

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ubp2.errors import UserError
from ubp2.vision import dinov2, weights
from ubp2.vision.resampling import resampling

DATA = Path(__file__).parent / "data"
safetensors = pytest.importorskip("safetensors.numpy")


def arrays(name: str) -> dict[str, np.ndarray]:
    return safetensors.load_file(DATA / f"{name}.safetensors")


def seen(encoder: dinov2.DinoV2, images: np.ndarray) -> np.ndarray:
    """All tokens but the registers, as the reference has them in a row."""
    found = encoder(jnp.asarray(images))
    return np.concatenate(
        [np.asarray(found.summary)[:, None], np.asarray(found.patches).reshape(len(images), -1, 64)], 1
    )


@pytest.mark.parametrize("size", ["70x70", "42x42", "84x126"])
@pytest.mark.parametrize("name", ["plain", "registers"])
def test_it_sees_what_the_reference_sees(name: str, size: str) -> None:
    encoder = weights.load(DATA / f"{name}.safetensors")
    with np.load(DATA / f"{name}.npz") as golden:
        images, tokens = golden[f"images-{size}"], golden[f"tokens-{size}"]
    expected = np.delete(tokens, slice(1, 1 + len(encoder.registers)), axis=1)
    np.testing.assert_allclose(seen(encoder, images), expected, atol=1e-4)


def test_an_image_is_seen_the_same_in_any_batch_and_as_fractions() -> None:
    encoder = weights.load(DATA / "registers.safetensors")
    images = np.random.default_rng(0).integers(0, 256, (5, 56, 56, 3), np.uint8)
    together = seen(encoder, images)
    np.testing.assert_allclose(seen(encoder, images[2:3]), together[2:3], atol=1e-4)
    np.testing.assert_allclose(seen(encoder, (images / 255).astype(np.float32)), together, atol=1e-4)
    cut = np.pad(images, ((0, 0), (0, 9), (0, 13), (0, 0)))
    np.testing.assert_allclose(seen(encoder, cut), together, atol=1e-4)


def test_half_the_digits_see_much_the_same() -> None:
    encoder = weights.load(DATA / "plain.safetensors")
    images = np.random.default_rng(0).integers(0, 256, (2, 70, 70, 3), np.uint8)
    full, half = seen(encoder, images), seen(encoder.as_type(jnp.bfloat16), images)
    assert np.corrcoef(full.ravel(), half.ravel())[0, 1] > 0.99 and not np.array_equal(full, half)


def hub(name: str) -> str:
    """As the files on the Hub have it."""
    for new, old in (("q_proj", "attention.query"), ("k_proj", "attention.key"), ("v_proj", "attention.value")):
        name = name.replace(f"attention.{new}", f"attention.{old}")
    return name.replace("attention.o_proj", "attention.output.dense")


ORIGINAL = (
    (r"^embeddings\.(cls_token|register_tokens|mask_token)", r"\1"),
    (r"^embeddings\.position_embeddings", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^encoder\.layer\.", "blocks."),
    (r"attention\.o_proj", "attn.proj"),
    (r"layer_scale(\d)\.lambda1", r"ls\1.gamma"),
    (r"^layernorm", "norm"),
)


def original(own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """As the original repository has it: queries, keys and values are one array."""
    found: dict[str, np.ndarray] = {}
    for name, array in own.items():
        match = re.fullmatch(r"encoder\.layer\.(\d+)\.attention\.([qkv])_proj\.(\w+)", name)
        if match is None:
            for pattern, replacement in ORIGINAL:
                name = re.sub(pattern, replacement, name)
            found[name] = array
        elif match[2] == "q":
            three = [own[name.replace("q_proj", f"{kind}_proj")] for kind in "qkv"]
            found[f"blocks.{match[1]}.attn.qkv.{match[3]}"] = np.concatenate(three)
    return found


@pytest.mark.parametrize("name", ["plain", "registers"])
def test_every_way_of_naming_is_one_encoder(name: str) -> None:
    own = arrays(name)
    first = weights.from_arrays(own)
    for other in ({hub(key): value for key, value in own.items()}, original(own)):
        assert set(other) != set(own)
        same = jax.tree.map(np.array_equal, first, weights.from_arrays(other))
        assert all(jax.tree.leaves(same))
    assert weights.from_arrays({f"dinov2.{key}": value for key, value in own.items()}).sizes == first.sizes


def test_published_sizes() -> None:
    """Parameters as published: 22, 86 and 304 million."""
    for name, millions in (("small", 22), ("base", 86), ("large", 304)):
        sizes = dinov2.SIZES[f"dinov2-{name}"]
        shapes = jax.eval_shape(lambda sizes=sizes: dinov2.random(sizes))
        assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) / 1e6 == pytest.approx(millions, rel=0.02)
        assert sizes.width // sizes.heads == weights.HEAD


def test_what_is_no_dinov2_is_refused_in_a_sentence(tmp_path: Path) -> None:
    own = arrays("plain")
    with pytest.raises(UserError, match="not the weights of a DINOv2"):
        weights.from_arrays({"a": np.zeros(3)})
    with pytest.raises(UserError, match=r"the array embeddings.cls_token is missing"):
        weights.from_arrays({name: array for name, array in own.items() if "cls_token" not in name})
    with pytest.raises(UserError, match=r"attention.query.bias is missing"):
        weights.from_arrays({name: array for name, array in own.items() if "1.attention.q_proj.bias" not in name})
    with pytest.raises(UserError, match="the giant DINOv2"):
        weights.from_arrays({**own, "encoder.layer.0.mlp.gate_proj.weight": np.zeros(1)})
    with pytest.raises(UserError, match="there are no weights at"):
        weights.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"junk" * 10)
    with pytest.raises(UserError, match=r"model.safetensors is no safetensors file"):
        weights.load(tmp_path)


@pytest.mark.parametrize("antialias", [False, True])
def test_resampling_keeps_what_is_constant_and_does_nothing_for_nothing(antialias: bool) -> None:
    for old, new in ((37, 16), (5, 9), (16, 16)):
        np.testing.assert_allclose(resampling(old, new, antialias=antialias).sum(1), 1.0)
    np.testing.assert_allclose(resampling(8, 8, antialias=antialias), np.eye(8), atol=1e-12)
