"""One film of an agent before any label and after its last, the same episode side by side, for the README.

    python scripts/before_after.py RUN [RUN ...] --out docs/images/before-after.gif [--controller planner]

Before its first labels an agent acts at random, so that is what the left of each pair shows. A folder needs
`config.yaml`, `info.json` and its newest checkpoint, no more.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import ubp2
from ubp2.envs.base import Env
from ubp2.envs.registry import make
from ubp2.evaluation.video import write_gif
from ubp2.storage.runs import Run
from ubp2.training import checkpoint

CAPTION = 26  # pixels above each film
GAP = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--controller", choices=("policy", "planner"), default="planner")
    parser.add_argument("--pixels", type=int, default=190)
    parser.add_argument("--every", type=int, default=2, help="decisions a frame")
    parser.add_argument("--seed", type=int, default=None, help="of the episode; the first of evaluation if not given")
    args = parser.parse_args()
    films: list[np.ndarray] = []
    for folder in args.runs:
        films += pair(folder, args)
    length = max(map(len, films))
    still = [np.concatenate([film, film[-1:].repeat(length - len(film), axis=0)]) for film in films]
    gap = np.full((length, still[0].shape[1], GAP, 3), 255, np.uint8)
    wide = np.concatenate([part for film in still for part in (film, gap)][:-1], axis=2)
    write_gif(args.out, np.concatenate([wide, wide[-1:].repeat(8, axis=0)]), 10.0)
    print(f"{args.out}: {len(wide)} frames of {wide.shape[2]} x {wide.shape[1]}")


def pair(folder: Path, args: argparse.Namespace) -> list[np.ndarray]:
    """The film of random actions, and that of the agent, each with what it is written above."""
    config, saved = Run.open(folder).config, checkpoint.load_latest(folder / "checkpoints")
    assert saved is not None, f"{folder} has no checkpoint"
    chance, controller = np.random.default_rng(0), ubp2.load(folder, controller=args.controller)
    env = make(config.env, config.environment)
    low, high = np.array(env.spec.action_low), np.array(env.spec.action_high)
    seed = config.evaluation.seed if args.seed is None else args.seed

    def known(obs: np.ndarray) -> np.ndarray:
        return (controller.act(obs) - low) / (high - low) * 2 - 1

    def unknown(_: np.ndarray) -> np.ndarray:
        return chance.uniform(-1, 1, low.shape)

    task = config.env.partition("/")[2].replace("-", " ")
    told = (f"{task}, no labels", f"{saved.meta['labels']} labels")
    try:
        return [film(env, act, seed, text, args) for act, text in zip((unknown, known), told, strict=True)]
    finally:
        env.close()


def film(env: Env, act: Callable, seed: int, text: str, args: argparse.Namespace) -> np.ndarray:
    """Frames [T, h, w, 3] of one episode; where it is solved, it stops a little later."""
    obs, frames, decision, left = env.reset(seed), [], 0, -1
    while left:
        if decision % args.every == 0:
            frames.append(captioned(env.render(), text, args.pixels, solved=left >= 0))
        step = env.step(np.asarray(act(obs), np.float32))
        obs, decision, left = step.obs, decision + 1, left - 1 if left > 0 else left
        if step.success and left < 0:
            left = 6 * args.every
        if step.terminated or step.truncated:
            break
    return np.stack(frames)


def captioned(frame: np.ndarray, text: str, pixels: int, solved: bool) -> np.ndarray:
    """The frame, `pixels` wide, under its caption, which turns green when the task is solved."""
    picture = Image.new("RGB", (pixels, pixels + CAPTION), "white")
    picture.paste(Image.fromarray(frame).resize((pixels, pixels), Image.Resampling.LANCZOS), (0, CAPTION))
    font = ImageFont.load_default(size=13)
    ImageDraw.Draw(picture).text((2, 5), text + (": solved" if solved else ""), "#1a7f37" if solved else "#333", font)
    return np.asarray(picture)


if __name__ == "__main__":
    main()
