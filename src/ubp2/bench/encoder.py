"""ubp2 bench encoder: what it costs to see, with weights drawn at random; published ones are as fast."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ubp2.bench.options import Encoder
from ubp2.bench.report import Report, Row
from ubp2.bench.timing import medians, on_gpu
from ubp2.errors import UserError, unknown_name
from ubp2.vision import conv, dinov2
from ubp2.vision.encoders import compiled, summary

__all__ = ["measure"]


def measure(options: Encoder) -> Report:
    """A row for each encoder and number of frames."""
    sizes = ("small", "base", "large") if on_gpu() else ("small",)
    rows = []
    for name in options.name or ("conv", *(f"dinov2-{size}" for size in sizes)):
        model, features = _model(name, options)
        rows += [_row(name, model, features, n, options) for n in options.batch]
    report = Report("encoder", {"encoders": rows})
    report.notes += [
        f"frames of {options.pixels} pixels, from bytes on the host to features on the host",
        "program: weights and everything else that one call needs",
    ]
    if not on_gpu():
        report.notes.append("a run on a CPU encodes frame by frame (docs/visual.md); in one program is what that costs")
    return report


def _model(name: str, options: Encoder) -> tuple[Any, Callable[[Any, Array], Array]]:
    if name == "conv":
        return conv.random(options.pixels), conv.Conv.__call__
    if name not in dinov2.SIZES:
        raise unknown_name("encoder", name, ["conv", *dinov2.SIZES])
    if options.pixels % dinov2.SIZES[name].patch:
        raise UserError(f"--pixels must be a multiple of {dinov2.SIZES[name].patch} for {name}, got {options.pixels}")
    half = options.precision == "bfloat16" or (options.precision == "auto" and on_gpu())
    model = dinov2.random(dinov2.SIZES[name])
    return (model.as_type(jnp.bfloat16) if half else model), summary


def _row(name: str, model: Any, features: Callable[[Any, Array], Array], n: int, options: Encoder) -> Row:
    frames = np.random.default_rng(0).integers(0, 256, (n, options.pixels, options.pixels, 3), np.uint8)
    start = time.perf_counter()
    program = eqx.filter_jit(features).lower(model, frames).compile()
    compiling = time.perf_counter() - start
    memory = program.compiled.memory_analysis()
    encode = compiled(model, features)
    runs = [lambda: encode(frames), lambda: np.asarray(program(model, frames))]
    seconds, together = medians(runs, options.repetitions, warm_up=1, least=3)
    arrays = jax.tree.leaves(eqx.filter(model, eqx.is_array))
    return {
        "encoder": name,
        "million_weights": sum(array.size for array in arrays) / 1e6,
        "frames": n,
        "ms": 1e3 * seconds,
        "frames_per_s": n / seconds,
        "in_one_program_per_s": n / together,
        "weights_mb": sum(array.nbytes for array in arrays) / 1e6,
        "program_mb": (memory.argument_size_in_bytes + memory.temp_size_in_bytes) / 1e6,
        "compile_s": compiling,
    }
