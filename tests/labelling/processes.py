"""Servers and trainers as processes of their own, which can be killed."""

from __future__ import annotations

import http.client
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


class Process:
    """A process that is killed as nobody expects."""

    def __init__(self, command: list[str]) -> None:
        path = [root() / "src", root(), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @property
    def pid(self) -> int:
        return self._process.pid

    def running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """SIGKILL: nothing in it runs any further."""
        self._process.send_signal(signal.SIGKILL)
        self._process.communicate()

    def stop(self) -> tuple[int, str, str]:
        """SIGTERM; its exit code and what it wrote on stdout and stderr."""
        self._process.terminate()
        out, text = self._process.communicate(timeout=60)
        return self._process.returncode, out.decode(), text.decode()


def root() -> Path:
    return Path(__file__).parents[2]


def server(folder: Path, port: int, *options: str, answers: bool = True) -> Process:
    """`ubp2 label`, which answers when this returns, or has only just begun to listen."""
    command = [sys.executable, "-m", "ubp2", "label", str(folder), "--port", str(port), "--no-browser", *options]
    process, end = Process(command), time.monotonic() + 120
    while time.monotonic() < end and process.running():
        try:
            if answers:
                line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
                line.request("GET", "/api/progress")
                line.getresponse().read()
                line.close()
            else:
                socket.create_connection(("127.0.0.1", port), 1).close()
            return process
        except (OSError, http.client.HTTPException):
            time.sleep(0.02)
    raise AssertionError(f"the server did not start: {process.stop()[2]}")


def trainer(folder: Path) -> Process:
    """`train`, in a process of its own."""
    code = "import sys, pathlib; from tests.labelling.crowd import train; train(pathlib.Path(sys.argv[1]))"
    return Process([sys.executable, "-c", code, str(folder)])


TINY = shlex.split(
    "--env toy/reach --steps 1000000 --training.warmup 200 --training.warmup-updates 2 --training.batch-size 8 "
    "--training.replay-capacity 20000 --model.width 16 --model.depth 1 --planner.samples 8 --planner.elites 4 "
    "--planner.policy-samples 2 --planner.iterations 1 --planner.horizon 2 --preferences.every 50 "
    "--preferences.per-session 20 --preferences.budget 100000 --preferences.candidates 40 --evaluation.every 0 "
    "--checkpoint.every 200"
)


def real_trainer(folder: Path, address: str | None = None) -> Process:
    """`ubp2 train`, or `--resume` where there is a run, that waits for people; address: where their page is."""
    teacher = ["--teacher", address] if address else ["--teacher", "human", "--teacher.no-serve"]
    command = [sys.executable, "-m", "ubp2", "train", "--quiet"]
    if (folder / "config.yaml").exists():
        return Process([*command, "--resume", str(folder)])
    return Process([*command, *TINY, *teacher, "--out", str(folder)])


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
