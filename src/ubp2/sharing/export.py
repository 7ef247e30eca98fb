"""The policy of a run as one small file: for NumPy alone (`numpy_policy`), or as ONNX."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ubp2._version import __version__
from ubp2.agents.base import Reflex
from ubp2.config.schema import ModelConfig
from ubp2.envs.visual import is_visual
from ubp2.errors import UserError
from ubp2.models import kernels, normalizer
from ubp2.models.networks import GROUP, MLP
from ubp2.sharing import numpy_policy
from ubp2.sharing.options import Format, target
from ubp2.storage import population
from ubp2.storage.database import disk_errors
from ubp2.trained import restored

__all__ = ["Exported", "export", "policy_of", "write_numpy", "written"]


class Exported(NamedTuple):
    """A policy as `numpy_policy.Policy` takes it."""

    metadata: dict[str, Any]
    arrays: dict[str, np.ndarray]


def export(run: Path | str, out: Path | str | None = None, format: Format | None = None) -> Path:
    """Write the policy of the newest checkpoint of a run into one file, and return its path.

    It acts as `ubp2.load(run).act` does, up to the rounding of float32. Beside an .npz file lies numpy_policy.py, which
    loads it and needs NumPy alone.

    Args:
        run: The run folder.
        out: The file; None: policy.npz or policy.onnx here.
        format: numpy or onnx; None: what the ending of `out` says, numpy if there is none.
    """
    return written(run, out, format)[0]


def written(run: Path | str, out: Path | str | None, format: Format | None) -> tuple[Path, Exported]:
    """What `export` does; the path, and what was written there."""
    kind, path = target(None if out is None else Path(out), format)
    policy = policy_of(run)
    with disk_errors(path, None):
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "numpy":
            write_numpy(policy, path)
        else:
            from ubp2.sharing.onnx_policy import write_onnx

            write_onnx(policy.metadata, policy.arrays, path)
    return path, policy


def policy_of(run: Path | str) -> Exported:
    """The policy of the newest checkpoint of a run."""
    folders = population.members(run)
    if len(folders) > 1:
        raise UserError(f"{run} holds {len(folders)} runs; export the policy of one of them, such as {folders[0]}")
    trained = restored(folders, "policy")
    config, spec, counters = trained.config, trained.spec, trained.counters[0]
    if is_visual(config.env):
        raise UserError(
            f"{run} acts on features of frames, and the encoder {config.visual.encoder} that makes them needs ubp2: "
            f"its policy alone is of no use. Use it with ubp2.load({str(run)!r}).act(frame)"
        )
    if trained.agent.reflex is None:
        raise UserError(
            f"the agent {config.agent} of {run} does not say what its policy is made of (Agent.reflex), so it cannot "
            f"be exported; use it with ubp2.load({str(run)!r})"
        )
    reflex = trained.agent.reflex(jax.tree.map(lambda leaf: np.asarray(leaf)[0], trained.state))
    metadata = {
        "format": numpy_policy.FORMAT,
        "env": config.env,
        "obs_dim": spec.obs_dim,
        "action_dim": spec.action_dim,
        "action_low": list(spec.action_low),
        "action_high": list(spec.action_high),
        "action_repeat": spec.action_repeat,
        "episode_decisions": spec.episode_decisions,
        "agent": config.agent,
        "seed": config.seed,
        "decisions": int(counters["decision"]),
        "labels": int(counters["labels"]),
        "ubp2": __version__,
        "clip": config.model.obs_limit,
        "tail": config.model.obs_tail,
        "layer_norm_epsilon": kernels.EPSILON,
        "simnorm_group": GROUP,
    }
    return Exported(metadata, _arrays(config.model, reflex))


def _arrays(config: ModelConfig, reflex: Reflex) -> dict[str, np.ndarray]:
    """Parameters by name, float32."""
    mean, scale = normalizer.units(config, reflex.stats)
    found = {"mean": mean, "scale": scale, **_layers("policy", reflex.policy)}
    if reflex.encoder is not None:
        found |= _layers("encoder", reflex.encoder)
    return {name: np.asarray(array, np.float32) for name, array in found.items()}


def _layers(name: str, network: MLP) -> dict[str, Any]:
    parts = {"weight": network.weights, "bias": network.biases, "scale": network.scales, "offset": network.offsets}
    return {f"{name}.{part}.{i}": array for part, arrays in parts.items() for i, array in enumerate(arrays)}


def write_numpy(policy: Exported, path: Path) -> None:
    """Write the file and, before it, the loader beside it, each in one step. The same policy gives the same bytes."""
    partial = path.with_name(f".{path.name}.tmp")
    try:
        shutil.copyfile(numpy_policy.__file__, partial)
        os.replace(partial, path.with_name("numpy_policy.py"))
        with partial.open("wb") as stream:
            np.savez(stream, metadata=np.array(json.dumps(policy.metadata)), **policy.arrays)  # type: ignore[arg-type]
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
