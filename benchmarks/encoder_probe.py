"""What encoders tell of the state behind the frames: the share of its variance that can be read off their features.

    python benchmarks/encoder_probe.py --env dmc-visual/walker-walk random-conv conv=encoder.npz dinov2-small=FILE

Frames and states come from episodes of random actions. Three frames in a row are an observation, as in a run; kernel
ridge regression, fitted on most of the episodes and judged on the rest, reads the environment's own observation off it.
Its width and ridge are chosen on a part of the episodes that it is fitted to.
`pca` is 64 principal components of the pixels, `state` the observation itself: below the one nothing has been learned
from frames, and above the other nothing can get.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.registry import make
from ubp2.envs.visual import base_id, squared
from ubp2.vision.encoders import make_encoder
from ubp2.vision.watching import EPISODE, held

STACK = 3
HELD_OUT = 0.2
MOST = 2500  # observations that the regression is fitted to
WIDTHS, RIDGES = (0.3, 1.0, 3.0), (1e-3, 1e-2, 1e-1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoders", nargs="*", help="NAME or NAME=WEIGHTS")
    parser.add_argument("--env", default="dmc-visual/walker-walk")
    parser.add_argument("--episodes", type=int, default=80)
    parser.add_argument("--pixels", type=int, default=112)
    parser.add_argument("--seed", type=int, default=1, help="unlike that of the film which the encoder was trained on")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    frames, states = gather(args.env, args.episodes, args.pixels, args.seed)  # [E, T, ...]
    rows = {"state": told(states, states), "pca": told(pca(frames), states)}
    for word in args.encoders:
        name, _, weights = word.partition("=")
        encoder = make_encoder(VisualConfig(encoder=name, weights=weights or None, pixels=args.pixels))
        rows[name] = told(each(encoder.encode, frames), states)
    for name, share in rows.items():
        print(f"{name:24} {share:.3f}")
    if args.out:
        command = shlex.join(["python", "benchmarks/encoder_probe.py", *sys.argv[1:]])
        told_by = {"env": args.env, "episodes": args.episodes, "pixels": args.pixels, "seed": args.seed, "told": rows}
        args.out.write_text(json.dumps({"command": command, **told_by}, indent=2) + "\n", encoding="utf-8")


def gather(env_id: str, episodes: int, pixels: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Frames [E, T, P, P, 3] and states [E, T, D] of random actions."""
    env, rng = make(base_id(env_id), EnvironmentConfig()), np.random.default_rng(seed)
    frames = np.zeros((episodes, EPISODE, pixels, pixels, 3), np.uint8)
    states = np.zeros((episodes, EPISODE, env.spec.obs_dim))
    for e in range(episodes):
        obs = env.reset(int(rng.integers(2**31)))
        for t, action in enumerate(held(rng, 1, EPISODE, env.spec.action_dim)[0]):
            frames[e, t], states[e, t] = squared(env.render(size=pixels), pixels), obs
            obs = env.step(action).obs
    env.close()
    return frames, states


def each(encode: Callable[[np.ndarray], np.ndarray], frames: np.ndarray) -> np.ndarray:
    """Features [E, T, F]."""
    return np.stack([encode(episode) for episode in frames])


def pca(frames: np.ndarray, components: int = 64) -> np.ndarray:
    """Principal components of pixels, every second along each axis."""
    flat = frames[:, :, ::2, ::2].reshape(*frames.shape[:2], -1) / np.float32(255)
    flat = flat - flat.mean((0, 1))
    axes = np.linalg.svd(flat.reshape(-1, flat.shape[-1])[::3], full_matrices=False)[2]
    return flat @ axes[:components].T


def told(features: np.ndarray, states: np.ndarray) -> float:
    """Share of the variance of states that features of frames in a row tell, in episodes that were not fitted."""
    features = (features - features.mean((0, 1))) / (features.std((0, 1)) + 1e-6)
    steps = [features[:, STACK - 1 :]]
    steps += [
        features[:, STACK - 1 - i : features.shape[1] - i] - features[:, STACK - 2 - i : -1 - i] for i in range(2)
    ]
    x, y = np.concatenate(steps, -1), states[:, STACK - 1 :]
    y = (y - y.mean((0, 1))) / (y.std((0, 1)) + 1e-6)
    judged = int(len(x) * (1 - HELD_OUT))
    chosen_on = int(judged * (1 - HELD_OUT))
    first, second, last = slice(chosen_on), slice(chosen_on, judged), slice(judged, None)
    settings = [(width, ridge) for width in WIDTHS for ridge in RIDGES]
    best = max(settings, key=lambda setting: explained(x[first], y[first], x[second], y[second], *setting))
    return explained(x[:judged], y[:judged], x[last], y[last], *best)


def explained(x: np.ndarray, y: np.ndarray, other: np.ndarray, wanted: np.ndarray, width: float, ridge: float) -> float:
    """Share of the variance of `wanted` that kernel ridge regression, fitted to x and y, tells from `other`."""
    x, y, other, wanted = (part.reshape(-1, part.shape[-1]) for part in (x, y, other, wanted))
    some = np.random.default_rng(0).permutation(len(x))[:MOST]
    x, y = x[some], y[some]
    near = distances(x, x)
    unit = np.median(near)
    kernel, against = np.exp(-width * near / unit), np.exp(-width * distances(other, x) / unit)
    guess = against @ np.linalg.solve(kernel + ridge * np.eye(len(kernel)), y)
    return float(1 - np.mean((guess - wanted) ** 2) / np.mean((wanted - wanted.mean(0)) ** 2))


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Squared distances [len(a), len(b)]."""
    return np.maximum((a**2).sum(1)[:, None] + (b**2).sum(1)[None] - 2 * a @ b.T, 0.0)


if __name__ == "__main__":
    main()
