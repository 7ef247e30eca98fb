"""ubp2 encoder train: an encoder for an environment, made once and used by many runs."""

from __future__ import annotations

from typing import Any

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.workers import make_vector
from ubp2.terminal.progress import say
from ubp2.vision import conv_training
from ubp2.vision.options import Encoder

__all__ = ["answer"]


def answer(args: Encoder) -> tuple[dict[str, Any], str]:
    """Train the encoder; what became of it, as JSON and as text."""
    visual = VisualConfig(encoder="conv", pixels=args.pixels, camera=args.camera)
    args.out.parent.mkdir(parents=True, exist_ok=True)  # a folder that cannot be made would waste the work
    envs = make_vector(args.env, EnvironmentConfig(), args.workers, visual)
    try:
        sizes = {"frames": args.frames, "updates": args.updates, "seed": args.seed}
        found = conv_training.train(envs, args.out, **sizes, note=lambda text: None if args.quiet else say(text))
    finally:
        envs.close()
    flags = f"--visual.encoder conv --visual.weights {args.out} --visual.pixels {args.pixels}"
    seen = [max(0.0, found[name]) for name in ("drawn", "told")]  # below 0: worse than no guess
    lines = [
        f"{args.out}: {found['features']} features a frame, weights {found['digest'][:12]}",
        f"in frames it has not seen they tell {seen[0]:.0%} of what changes and {seen[1]:.0%} of actions",
        f"train with: ubp2 train --env {args.env} {flags}",
    ]
    return {"out": args.out, **found}, "\n".join(lines)
