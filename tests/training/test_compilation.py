"""Programs that compile in the background: once, for one shape, with their errors, and never in the way of an exit."""

from __future__ import annotations

import dataclasses
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.training.helpers import environment, rows, tiny
from tests.waiting import HEARS_CTRL_C
from ubp2 import api
from ubp2.agents.registry import make_agent
from ubp2.config.files import save_yaml
from ubp2.config.resolving import resolve
from ubp2.envs.base import EnvSpec
from ubp2.training.compilation import THREADS, Program
from ubp2.training.member_axis import Layout
from ubp2.training.programs import make_programs
from ubp2.training.startup import Stopwatch
from ubp2.types import Frame

SHAPE = jax.ShapeDtypeStruct((3,), jnp.float32)


def never() -> bool:
    return False


def test_a_program_compiles_once_prepared_or_not() -> None:
    for prepared in (True, False):
        traces = []

        def double(factor: Any, x: Any, traces: list[int] = traces) -> Any:
            traces.append(1)
            return factor * x

        program = Program(double, bound=(np.float32(2.0),))
        assert program.compilations == 0
        if prepared:
            program.prepare(SHAPE)
            assert program.outputs().shape == (3,)
            assert program.ready(never)
        for _ in range(2):
            np.testing.assert_array_equal(program(np.ones(3, np.float32)), [2.0, 2.0, 2.0])
        assert program.compilations == len(traces) == 1


def test_another_shape_is_refused() -> None:
    program = Program(lambda x: x)
    program(np.ones(3, np.float32))
    with pytest.raises(TypeError):
        program(np.ones(4, np.float32))


def test_an_error_of_the_background_reaches_whoever_calls() -> None:
    def broken(x: Any) -> Any:
        raise RuntimeError("no such operation")

    program = Program(broken)
    program.prepare(SHAPE)
    for attempt in (lambda: program(np.ones(3, np.float32)), lambda: program.ready(never), program.outputs):
        with pytest.raises(RuntimeError, match="no such operation"):
            attempt()


def test_a_signal_ends_the_wait() -> None:
    goes_on = threading.Event()

    def slow(x: Any) -> Any:
        assert goes_on.wait(60)
        return x

    program, asked = Program(slow), iter([False, False, True, True])
    program.prepare(SHAPE)
    while program._own is None or not program._own.begun:
        time.sleep(0.01)
    assert not program.ready(lambda: next(asked)), "while it was being traced"
    goes_on.set()
    assert program.ready(never)


def test_a_signal_ends_the_wait_for_a_program_in_the_queue() -> None:
    """Whoever compiled it in the main thread would hear no signal."""
    goes_on = threading.Event()

    def slow(x: Any) -> Any:
        assert goes_on.wait(60)
        return x

    for _ in range(THREADS):
        Program(slow).prepare(SHAPE)
    queued, asked = Program(lambda x: x + 1), iter([False, False, True, True])
    queued.prepare(SHAPE)
    try:
        assert not queued.ready(lambda: next(asked))
    finally:
        goes_on.set()
    assert queued.ready(never) and queued.compilations == 1
    queued = Program(lambda x: x + 1)
    queued.prepare(SHAPE)
    queued.cancel()
    assert queued.ready(never), "nobody compiles it: the first call does"


@pytest.mark.parametrize("seeds", [1, 2])
@pytest.mark.parametrize("ceiling", [False, True])
def test_recording_copies_no_ring(seeds: int, ceiling: bool) -> None:
    """With a million frames a copy would cost more than the decision."""
    config = resolve(tiny(ceiling=ceiling), 20)
    spec = EnvSpec("test", 4, 2, 20, 1, 10, True, (-1.0, -1.0), (1.0, 1.0))
    agent = make_agent(config, 4, 2)
    programs = make_programs(Layout.of([dataclasses.replace(config, seed=i) for i in range(seeds)], spec), agent)
    state, memory, _ = programs.init()
    obs, action, no = np.zeros((seeds, 4), np.float32), np.zeros((seeds, 2), np.float32), np.zeros(seeds, bool)
    frame = Frame(obs, action, no, np.zeros(seeds, np.int32), np.zeros(seeds, np.int32))  # type: ignore[arg-type]
    capacity = memory.replay.frames.obs.shape[1]
    programs.record(agent.seen(state), memory, frame, obs, no, np.zeros(seeds, np.float32))
    text = programs.record._executable.as_text()  # type: ignore[union-attr]
    assert str(capacity) in text
    assert [line for line in text.splitlines() if re.search(rf"\[(\d+,)?{capacity}[],].* copy\(", line)] == []


def test_ctrl_c_does_not_wait_for_the_compiler(tmp_path: Path) -> None:
    """A signal at the first decision, with a cold cache: the command saves and leaves while XLA is still busy."""
    save_yaml(tiny(model={"width": 64}, environment={"episode_decisions": 20}), tmp_path / "config.yaml")
    code = (
        "import pytest, jax; from tests.training.test_resume import send_at; from ubp2 import __main__\n"
        "jax.config.update('jax_enable_compilation_cache', False)\n"
        f"send_at(pytest.MonkeyPatch(), 'decision', 3, {signal.SIGINT:d})\n"
        "__main__.run()"
    )
    line = [sys.executable, "-c", code, "train", "--config", tmp_path / "config.yaml", "--out", tmp_path / "run"]
    ended = subprocess.run(line, capture_output=True, text=True, env=environment(), timeout=120)
    assert ended.returncode == 75, ended.stderr
    assert "stopped at decision 3" in ended.stdout and "Traceback" not in ended.stderr


class Notes:
    """Stands for the progress."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)


def test_the_wait_for_the_first_decisions_is_told_once() -> None:
    notes = Notes()
    watch = Stopwatch(notes, lambda: 4.06)  # type: ignore[arg-type]
    watch.decided(planned=False)
    assert watch.untold().keys() == {"time/first_decision"} and notes.said == []
    for _ in range(2):
        watch.decided(planned=True)
    assert watch.untold().keys() == {"time/first_plan"} and watch.untold() == {}
    (said,) = notes.said
    assert said == "first decision after 4.1 s; first plan after 4.1 s"


def test_rows_have_the_wait_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    api.train(tiny(), out=tmp_path / "run")
    assert "first decision after " in capsys.readouterr().err
    for name in ("time/first_decision", "time/first_plan"):
        (seconds,) = (row[name] for row in rows(tmp_path / "run") if name in row)
        assert seconds > 0


ENDING = """
import time
from ubp2.training import compilation
compilation.SILENT_SECONDS = 0.2
compilation._BACKGROUND.submit(lambda: time.sleep({seconds}))
time.sleep(0.2)
print("the script ends", flush=True)
"""


def test_a_script_that_ends_waits_for_a_compilation_and_says_so() -> None:
    """XLA cannot be interrupted: an interpreter that went away under it was aborted."""
    ended = subprocess.run([sys.executable, "-c", ENDING.format(seconds=2)], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, "the script ends\n")
    assert ended.stderr == "ubp2: waiting for a compilation, which cannot be interrupted; Ctrl-C leaves at once\n"


def test_ctrl_c_ends_that_wait() -> None:
    script = [sys.executable, "-c", HEARS_CTRL_C + ENDING.format(seconds=600)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(script, **pipes) as ending:
        assert ending.stderr is not None
        assert ending.stderr.readline().startswith("ubp2: waiting")
        ending.send_signal(signal.SIGINT)
        assert ending.wait(60) == 130
