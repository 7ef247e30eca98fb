"""The inside of a worker process, and the wire format that it shares with `ubp2.envs.workers`.

A message is one byte. The arrays lie in shared memory (`Slots`); only what is rare (the order, the spec, errors,
frames) follows its byte as a block with a length. Nothing here may import jax.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import signal
import socket
import struct
import sys
import traceback
from typing import Any, NamedTuple

import numpy as np

from ubp2.config.schema import EnvironmentConfig, VisualConfig
from ubp2.envs.base import Env, EnvSpec
from ubp2.errors import UserError

__all__ = [
    "CRASH",
    "OK",
    "RENDER",
    "RESET",
    "STEP",
    "USER_ERROR",
    "Slots",
    "build",
    "map_slots",
    "read_block",
    "serve",
    "write_block",
]

STEP, RESET, RENDER = b"s", b"r", b"v"  # parent to worker
OK, USER_ERROR, CRASH = b"k", b"u", b"x"  # worker to parent; the errors are followed by a block of text


class Slots(NamedTuple):
    """The shared memory of W workers; a worker sees its own row of each array."""

    reward: np.ndarray  # [W] float64
    seed: np.ndarray  # [W] int64
    action: np.ndarray  # [W, A] float32
    obs: np.ndarray  # [W, D] float32, or uint8 for frames
    flags: np.ndarray  # [W, 3] bool: terminated, truncated, success

    def row(self, index: int) -> Slots:
        """What worker `index` sees: views with a first axis of one."""
        return Slots(*(array[index : index + 1] for array in self))


def map_slots(fd: int, size: int, spec: EnvSpec) -> Slots:
    """Map the file behind `fd`, grown to what `size` workers of this environment need."""
    shapes = {
        "reward": (np.float64, (size,)),
        "seed": (np.int64, (size,)),
        "action": (np.float32, (size, spec.action_dim)),
        "obs": (spec.obs_type, (size, spec.obs_dim)),
        "flags": (np.bool_, (size, 3)),
    }  # widest type first: every array is aligned
    counts = {name: math.prod(shape) for name, (_, shape) in shapes.items()}
    total = sum(counts[name] * np.dtype(dtype).itemsize for name, (dtype, _) in shapes.items())
    if os.fstat(fd).st_size < total:  # several workers may do this at once: they agree on the size
        os.ftruncate(fd, total)
    memory, offset, arrays = mmap.mmap(fd, total), 0, {}
    for name, (dtype, shape) in shapes.items():
        arrays[name] = np.frombuffer(memory, dtype, counts[name], offset).reshape(shape)
        offset += arrays[name].nbytes
    return Slots(**arrays)


def write_block(connection: socket.socket, content: bytes) -> None:
    """Send bytes with their length in front."""
    connection.sendall(struct.pack("<Q", len(content)) + content)


def read_block(connection: socket.socket) -> bytes:
    """Receive what `write_block` sent; EOFError where the other end is gone."""
    return _read(connection, struct.unpack("<Q", _read(connection, 8))[0])


def serve(socket_fd: int, memory_fd: int, index: int, size: int) -> None:
    """Build the environment that the parent orders, then answer until the socket closes."""
    # Signals are the parent's to handle, also those that a scheduler sends to all; it closes the socket when it is done
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=socket_fd) as connection:
        try:
            order = read_block(connection)
            try:
                env = build(order)
                slots = map_slots(memory_fd, size, env.spec).row(index)
            except Exception as error:
                _report(connection, error)
                return
            connection.sendall(OK)
            write_block(connection, json.dumps(env.spec._asdict()).encode())
            _answer(env, slots, connection)
        except (EOFError, ConnectionError):
            return


def _answer(env: Env, slots: Slots, connection: socket.socket) -> None:
    """The loop of a worker. An exception of the environment is told to the parent, and the worker goes on."""
    while command := connection.recv(1):
        try:
            frame = _obey(env, slots, command)
        except Exception as error:
            _report(connection, error)
            continue
        connection.sendall(OK)
        if frame is not None:
            write_block(connection, struct.pack("<II", *frame.shape[:2]) + frame.tobytes())
    env.close()


def _obey(env: Env, slots: Slots, command: bytes) -> np.ndarray | None:
    """Carry out one command on the shared memory; only a rendered frame is returned."""
    if command == STEP:
        slots.obs[0], slots.reward[0], *slots.flags[0] = env.step(slots.action[0])
    elif command == RESET:
        slots.obs[0] = env.reset(int(slots.seed[0]))
    else:
        return env.render()
    return None


def build(order: bytes) -> Env:
    """The environment of an order: JSON with an id, or the pickle of a user's function. See `workers.write_order`."""
    kind, _, content = order.partition(b"\n")
    header: dict[str, Any] = json.loads(kind)
    options = EnvironmentConfig(**header["options"])
    visual = None if header["visual"] is None else VisualConfig(**header["visual"])
    if header["id"] is not None:
        from ubp2.envs.registry import make

        return make(header["id"], options, visual)
    import cloudpickle

    from ubp2.envs.adapter import adapt

    return adapt(cloudpickle.loads(content), options, visual=visual)


def _report(connection: socket.socket, error: Exception) -> None:
    """Tell the parent: a UserError as it is, anything else with the traceback below this module's frames."""
    if isinstance(error, UserError):
        connection.sendall(USER_ERROR)
        write_block(connection, str(error).encode())
        return
    connection.sendall(CRASH)
    text = f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"
    write_block(connection, text.encode(errors="replace"))
    sys.stderr.flush()


def _read(connection: socket.socket, size: int) -> bytes:
    content = bytearray()
    while len(content) < size:
        part = connection.recv(min(size - len(content), 1 << 20))
        if not part:
            raise EOFError
        content += part
    return bytes(content)
