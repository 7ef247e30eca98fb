"""Sections of the configuration that only some runs read; `schema` has the others and puts them together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["LEAST_PIXELS", "SUFFIX", "SacConfig", "VisualConfig", "is_visual"]

SUFFIX = "-visual"  # of the suite, in the id of an environment that is seen through its frames
LEAST_PIXELS = 32  # along a side of a frame, under which too little is left after the layers of a conv encoder


@dataclass(frozen=True)
class SacConfig:
    """Soft actor-critic, and PEBBLE on top of it; sizes and rates are those of `model` and `training`."""

    log_std: tuple[float, float] = (-5.0, 2.0)
    """Bounds of the policy's log standard deviation, which starts in their middle."""
    alpha: float = 0.1
    """Initial temperature."""
    alpha_learning_rate: float = 1e-4
    """Adam step size of the temperature."""
    target_rate: float = 0.005
    """Polyak rate of the target critics."""
    target_every: int = 2
    """Gradient steps between steps of the target critics."""
    epochs: int = 10
    """Most passes over all labels in the fit of a session; it ends at preferences.stop_accuracy."""
    reset_updates: int = 100
    """Gradient steps right after the first session, on critics as new."""
    neighbours: int = 2048
    """States of the replay among which the nearest is looked for before the first labels."""
    rune_beta: float = 0.05
    """RUNE: weight of the members' disagreement at the start."""
    rune_decay: float = 1e-5
    """RUNE: share by which that weight falls a decision."""
    mrn_every: int = 5000
    """MRN: updates between steps on what the critics would make of the reward."""
    mrn_weight: float = 0.1
    """MRN: weight of that loss."""
    surf_threshold: float = 0.99
    """SURF: an unlabelled pair counts for a member that is this sure of its answer."""
    surf_ratio: int = 4
    """SURF: unlabelled pairs a labelled one in a minibatch."""
    surf_weight: float = 1.0
    """SURF: weight of their loss."""
    compat: Literal["none", "bpref-code"] = "none"
    """none: novelty in units of its deviation; bpref-code: of the published code's estimate, at first far too large."""


def is_visual(env_id: str) -> bool:
    """Whether the environment of this id, or of this name of a user's own, is seen through its frames."""
    return env_id.partition("/")[0].endswith(SUFFIX)


@dataclass(frozen=True)
class VisualConfig:
    """Environments that are seen through their frames: dmc-visual/walker-walk, metaworld-visual/reach."""

    encoder: str = "dinov2-small"
    """What makes features of a frame, and does not learn: dinov2-small, conv, random-conv, module:function."""
    weights: str | None = None
    """Weights of the encoder: a file or a folder, or hub:facebook/dinov2-small."""
    pixels: int = 112
    """Side of the square frame; a multiple of 14 for DINOv2."""
    frames: int = 3
    """Frames whose features are one observation, the last ones; the first of an episode is repeated."""
    camera: str | None = None
    """Whose view it is; None: the camera that shows most."""
    keep_frames: bool = False
    """Keep the frames of every episode in RUN/frames: for clips where reset(seed) does not decide the episode."""
