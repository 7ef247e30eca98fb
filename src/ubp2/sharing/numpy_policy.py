"""Act with a policy that `ubp2 export` wrote. This file needs NumPy alone; copy it wherever the policy goes.

>>> policy = load_policy("policy.npz")  # doctest: +SKIP
>>> action = policy.act(obs)  # doctest: +SKIP

An action stands for one decision: repeat it in the simulator `policy.metadata["action_repeat"]` times.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["FORMAT", "Policy", "load_policy"]

FORMAT = 2  # 1 has neither a tail nor an encoder that ends in LayerNorm


class Policy:
    """A trained policy, without exploration: observations in, actions of the environment out."""

    def __init__(self, metadata: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
        """metadata: sizes, bounds of actions, where the policy comes from. arrays: its parameters by name."""
        self.metadata = metadata
        self._arrays = arrays
        self._low, self._high = (np.array(metadata[name]) for name in ("action_low", "action_high"))

    def act(self, obs: np.ndarray) -> np.ndarray:
        """The action [A] for one observation, flat or in a shape of its own."""
        return self.act_many(np.asarray(obs, np.float32).reshape(1, -1))[0]

    def act_many(self, obs: np.ndarray) -> np.ndarray:
        """The actions [N, A] for observations [N, D]."""
        obs, size = np.asarray(obs, np.float32), self.metadata["obs_dim"]
        if obs.ndim != 2 or obs.shape[1] != size:
            raise ValueError(f"expected observations of {size} numbers, got {obs.shape[-1] if obs.ndim else 1}")
        if not np.isfinite(obs).all():
            raise ValueError(f"the observation is not finite at index {int(np.argwhere(~np.isfinite(obs))[0, 1])}")
        z = self._bent((obs - self._arrays["mean"]) / self._arrays["scale"])
        if "encoder.weight.0" in self._arrays:
            z = _simnorm(self._network("encoder", z), self.metadata["simnorm_group"])
        said = self._network("policy", z)[:, : self.metadata["action_dim"]]
        return (self._low + (np.tanh(said) + 1.0) / 2.0 * (self._high - self._low)).astype(np.float32)

    def _bent(self, x: np.ndarray) -> np.ndarray:
        """Linear up to a limit, then logarithmic."""
        limit, tail = (np.float32(self.metadata.get(name, 0.0)) for name in ("clip", "tail"))
        size = np.abs(x)
        return np.sign(x) * (np.minimum(size, limit) + tail * np.log1p(np.maximum(size - limit, np.float32(0.0))))

    def _network(self, name: str, x: np.ndarray) -> np.ndarray:
        """Linear, LayerNorm and Mish for each hidden layer, then linear, and LayerNorm where there is one."""
        last = sum(key.startswith(f"{name}.weight.") for key in self._arrays) - 1
        for layer in range(last + 1):
            weight, bias, scale, offset = (
                self._arrays.get(f"{name}.{part}.{layer}") for part in ("weight", "bias", "scale", "offset")
            )
            x = x @ weight + bias
            if scale is not None:
                x = x - x.mean(axis=1, keepdims=True)
                x = x / np.sqrt((x**2).mean(axis=1, keepdims=True) + np.float32(self.metadata["layer_norm_epsilon"]))
                x = x * scale + offset
            x = x if layer == last else _mish(x)
        return x


def load_policy(path: str | Path) -> Policy:
    """Read a policy file; nothing in it is code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except (ValueError, EOFError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is no .npz file, or a damaged one: {error}") from error
    if "metadata" not in arrays:
        raise ValueError(f"{path} is no policy that ubp2 export wrote")
    metadata = json.loads(str(arrays.pop("metadata")))
    if metadata["format"] not in (1, FORMAT):
        raise ValueError(
            f"{path} has format {metadata['format']} and this loader reads up to {FORMAT}; "
            f"take the numpy_policy.py that was written with the policy"
        )
    return Policy(metadata, arrays)


def _mish(x: np.ndarray) -> np.ndarray:
    """x tanh(log(1 + e^x)), with a single exponential that cannot overflow."""
    e = np.exp(np.minimum(x, 20.0))
    ratio = e * (e + 2)
    return x * (ratio / (ratio + 2))


def _simnorm(x: np.ndarray, group: int) -> np.ndarray:
    """Softmax within groups of coordinates."""
    parts = x.reshape(len(x), -1, group)
    parts = np.exp(parts - parts.max(axis=2, keepdims=True))
    return (parts / parts.sum(axis=2, keepdims=True)).reshape(x.shape)
