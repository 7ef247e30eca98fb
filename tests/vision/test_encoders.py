"""Encoders by name: what they see, what they are known by, and what is said when they cannot be had."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import numpy as np
import pytest

from ubp2.config.schema import VisualConfig
from ubp2.errors import UserError
from ubp2.vision import conv, encoders
from ubp2.vision.dinov2 import Sizes
from ubp2.vision.encoders import Encoder, from_callable, make_encoder

DATA = Path(__file__).parent / "data"
SMALL = VisualConfig(encoder="random-conv", pixels=42)
FRAMES = np.random.default_rng(0).integers(0, 256, (5, 42, 42, 3), np.uint8)


def brightness(frame: np.ndarray) -> np.ndarray:
    """An encoder of a user's own: the mean of each colour."""
    return frame.mean((0, 1)) / 255


def refused(visual: VisualConfig, folder: Path | None = None) -> str:
    with pytest.raises(UserError) as caught:
        make_encoder(visual, folder)
    return str(caught.value)


def check(encoder: Encoder, features: int) -> None:
    """The promised shapes, and the same numbers for a frame whatever stands beside it: resuming relies on it."""
    seen = encoder.encode(FRAMES)
    assert encoder.features == features and seen.shape == (5, features) and seen.dtype == np.float32
    assert np.isfinite(seen).all() and not np.array_equal(seen[0], seen[1])
    np.testing.assert_array_equal(seen[3:4], encoder.encode(FRAMES[3:4]))
    np.testing.assert_array_equal(seen[[4, 0]], encoder.encode(FRAMES[[4, 0]]))


def test_random_weights_are_the_same_everywhere() -> None:
    encoder = make_encoder(SMALL)
    check(encoder, encoders.RANDOM_FEATURES)
    again = make_encoder(SMALL)
    assert again.digest == encoder.digest
    np.testing.assert_array_equal(again.encode(FRAMES), encoder.encode(FRAMES))
    assert make_encoder(dataclasses.replace(SMALL, pixels=56)).digest != encoder.digest
    assert "visual.pixels must be at least 32" in refused(dataclasses.replace(SMALL, pixels=16))
    assert encoders.describe(encoder) == f"encoder random-conv: 256 features a frame, weights {encoder.digest[:12]}"


def test_dinov2_of_a_file_a_folder_and_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    file = DATA / "registers.safetensors"
    visual = VisualConfig(encoder="dinov2-with-registers-small", weights=str(file), pixels=42)
    sentence = refused(visual)
    assert "has 64 features, 2 layers and 4 registers, and dinov2-with-registers-small has 384, 12 and 4" in sentence
    monkeypatch.setitem(encoders.SIZES, visual.encoder, Sizes(64, 2, 1, registers=4))  # type: ignore[arg-type]
    encoder = make_encoder(visual)
    check(encoder, 64)
    assert encoder.digest == hashlib.sha256(file.read_bytes()).hexdigest()
    (tmp_path / "model.safetensors").symlink_to(file)
    assert make_encoder(dataclasses.replace(visual, weights=str(tmp_path))).digest == encoder.digest
    assert "visual.pixels must be a multiple of 14" in refused(dataclasses.replace(visual, pixels=100))

    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    cache = tmp_path / "cache" / "models--facebook--dinov2-with-registers-small"
    (cache / "refs").mkdir(parents=True)
    (cache / "refs" / "main").write_text("0" * 40)
    (cache / "snapshots" / ("0" * 40)).mkdir(parents=True)
    (cache / "snapshots" / ("0" * 40) / "model.safetensors").symlink_to(file)
    assert make_encoder(dataclasses.replace(visual, weights=None)).digest == encoder.digest


def test_without_weights_a_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    advice = (
        "--visual.weights hub:facebook/dinov2-small",
        "https://huggingface.co/facebook/dinov2-small/resolve/main/model.safetensors",
        "--visual.weights FILE",
        "--visual.encoder conv",
        "random-conv",
        "module:function",
    )
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    for weights, start in (
        (None, "dinov2-small needs its published weights, and visual.weights names none."),
        ("hub:facebook/dinov2-small", "hub:facebook/dinov2-small cannot be downloaded ("),
        ("hub:not an/address/at all", "hub:not an/address/at all cannot be downloaded ("),
    ):
        sentence = refused(VisualConfig(weights=weights))
        assert sentence.startswith(start) and all(part in sentence for part in advice)
    assert "there are no weights at" in refused(VisualConfig(weights=str(tmp_path / "none.safetensors")))


def test_names_that_are_none() -> None:
    sentence = refused(VisualConfig(encoder="dinov2-smal"))
    assert "unknown encoder 'dinov2-smal'. Did you mean dinov2-small" in sentence and "module:function" in sentence


def test_the_trained_one_of_a_file_and_of_a_run(tmp_path: Path) -> None:
    visual = VisualConfig(encoder="conv", pixels=42)
    assert "ubp2 encoder train" in refused(visual)
    assert f"there is no encoder at {tmp_path / 'encoder.npz'}" in refused(visual, tmp_path)
    asked: list[Path] = []

    def train(path: Path) -> None:
        asked.append(path)
        conv.save(path, conv.random(42), {"env": "toy"})

    first = make_encoder(visual, tmp_path / "run", train)
    check(first, conv.FEATURES)
    assert make_encoder(visual, tmp_path / "run", train).digest == first.digest
    assert asked == [tmp_path / "run" / "encoder.npz"]
    named = dataclasses.replace(visual, weights=str(asked[0]))
    assert make_encoder(named).digest == first.digest
    assert "was trained on frames of 42 pixels" in refused(dataclasses.replace(named, pixels=56))


def test_a_file_that_has_changed_is_refused(tmp_path: Path) -> None:
    path, encoder = tmp_path / "encoder.npz", conv.random(42, seed=3)
    digest = conv.save(path, encoder, {"env": "toy", "seed": 3})
    saved = conv.load(path)
    assert saved.digest == digest == conv.digest(encoder) and saved.about == {"env": "toy", "seed": 3}
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match="is no encoder of ubp2 encoder train"):
        conv.load(path)
    with np.load(DATA / "plain.npz") as other:
        np.savez(path, **dict(other))
    with pytest.raises(UserError, match="is no encoder of ubp2 encoder train"):
        conv.load(path)
    path.write_bytes(whole)
    with np.load(path) as file:
        arrays = dict(file)
    arrays["bias0"] = arrays["bias0"] + 1
    np.savez(path, **arrays)
    with pytest.raises(UserError, match="is damaged, or of a newer version"):
        conv.load(path)


def test_a_function_of_ones_own() -> None:
    encoder = make_encoder(VisualConfig(encoder="tests.vision.test_encoders:brightness", pixels=42))
    check(encoder, 3)
    assert encoder.digest == "tests.vision.test_encoders:brightness"

    def together(frames: np.ndarray) -> np.ndarray:
        return frames.mean((1, 2)) / 255

    together.batched, together.digest = True, "v2"  # type: ignore[attr-defined]
    batched = from_callable("together", together, 42)
    assert batched.digest == "v2"
    np.testing.assert_allclose(batched.encode(FRAMES), encoder.encode(FRAMES), rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("no_such_module:see", "cannot be imported (No module named 'no_such_module')"),
        ("tests.vision.test_encoders:nothing", "cannot be imported (module"),
        ("tests.vision.test_encoders:DATA", "must be a function of a frame"),
        ("tests.vision.test_encoders:refused", "must make a vector of a frame [42, 42, 3] of uint8, and raised"),
    ],
)
def test_a_function_that_is_none(name: str, sentence: str) -> None:
    assert sentence in refused(VisualConfig(encoder=name, pixels=42))
