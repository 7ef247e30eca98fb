"""What is tried in a process of its own, because it may hang or take the process with it: python -m ubp2.doctor.trial.

A trial prints one JSON object as its last line. `attempt` starts one and tells its result, its failure or its silence.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Failed", "attempt", "devices", "end", "render", "work"]


class Failed(Exception):
    """A trial that came to nothing; the message is the last thing it said."""


_RUNNING: set[subprocess.Popen[str]] = set()


def attempt(name: str, seconds: float, **variables: str) -> dict[str, Any]:
    """Run a trial with these environment variables; `Failed` if it fails or is not over after so many seconds."""
    command = [sys.executable, "-m", __name__, name]
    try:
        # A session of its own: what a killed trial has started must not hold its pipes open.
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | variables,
            start_new_session=True,
        ) as process:
            _RUNNING.add(process)
            try:
                out, err = process.communicate(timeout=seconds)
            except BaseException:
                os.killpg(process.pid, 9)
                raise
            finally:
                _RUNNING.discard(process)
    except subprocess.TimeoutExpired:
        raise Failed(f"no answer within {seconds:g} s") from None
    if process.returncode:
        how = f"killed by signal {-process.returncode}" if process.returncode < 0 else f"code {process.returncode}"
        raise Failed((err.strip().splitlines() or [how])[-1])
    return json.loads(out.splitlines()[-1])


def end() -> None:
    """End every trial that is on its way, which then fails."""
    for process in list(_RUNNING):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, 9)


def devices() -> dict[str, Any]:
    """What jax computes on, after one small product on it."""
    from ubp2.system import prepare_jax

    prepare_jax()
    import jax
    import jax.numpy as jnp

    float(jnp.ones((8, 8)) @ jnp.ones(8) @ jnp.ones(8))
    return {"backend": jax.default_backend(), "devices": [device.device_kind for device in jax.devices()]}


def render() -> dict[str, Any]:
    """A red ball before the camera, drawn by MuJoCo with the backend that MUJOCO_GL names."""
    mujoco: Any = importlib.import_module("mujoco")  # its names are not known to type checkers
    ball = '<mujoco><worldbody><light pos="0 -2 2"/><geom type="sphere" size=".5" rgba="1 0 0 1"/></worldbody></mujoco>'
    model = mujoco.MjModel.from_xml_string(ball)
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    with mujoco.Renderer(model, 64, 64) as renderer:
        renderer.update_scene(data)
        brightest = int(renderer.render()[..., 0].max())
    if not brightest:
        raise RuntimeError("the picture is black")
    return {"brightest": brightest}


def work() -> dict[str, Any]:
    """A few decisions of toy/reach in a worker process, over shared memory, as every run makes them."""
    import numpy as np

    from ubp2.config.schema import EnvironmentConfig
    from ubp2.envs.workers import make_vector

    workers = make_vector("toy/reach", EnvironmentConfig(), 1)
    try:
        workers.reset(0, seed=0)
        for _ in range(10):
            workers.send(np.zeros((1, workers.spec.action_dim), np.float32))
            workers.receive()
    finally:
        workers.close()
    return {"decisions": 10}


TRIALS: Mapping[str, Callable[[], dict[str, Any]]] = {"devices": devices, "render": render, "work": work}

if __name__ == "__main__":
    try:
        print("\n" + json.dumps(TRIALS[sys.argv[1]]()), flush=True)
    except Exception as error:
        sys.exit(f"{type(error).__name__}: {error}")
