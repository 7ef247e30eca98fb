"""What tests of the page share: a server that can be killed, and a person at a browser."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
KEYS = {"left": "f", "right": "j", "equal": "e", "cant-tell": "c"}
OPEN = "#answers[data-open]"


def find_chromium() -> str:
    """$CHROMIUM, or a command that starts one: Ubuntu's may only say what to install. Skipped where there is none."""
    if given := os.environ.get("CHROMIUM"):
        return given
    for found in filter(None, map(shutil.which, ("chromium", "chromium-browser"))):
        if subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return found
    pytest.skip("no Chromium to show the page in; install chromium, or set CHROMIUM to one")


class Server:
    """The stub in a process of its own, on one port for its life."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.labelling.stub", str(self.folder), str(self.port)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path},
        )
        until(lambda: self._answers(), "the server answers", seconds=40)

    def begin(self) -> None:
        """Start, or forget what an earlier test did: a process for each test would cost more than most tests."""
        if self._process is None or self._process.poll() is not None:
            self.start()
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/forget", b""), timeout=20).close()

    def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is said."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def wait_for_death(self) -> None:
        assert self._process
        self._process.wait(15)

    def behave(self, **mood: Any) -> None:
        partial = self.folder / "mood.new"
        partial.write_text(json.dumps(mood), encoding="utf-8")
        partial.replace(self.folder / "mood.json")

    @property
    def acts(self) -> list[dict[str, Any]]:
        path = self.folder / "acts.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def answers(self) -> list[dict[str, Any]]:
        return [act for act in self.acts if act["act"] == "answer"]

    def _answers(self) -> bool:
        try:
            return urllib.request.urlopen(f"{self.url}/api/session", timeout=2).status == 200
        except (urllib.error.URLError, OSError):
            return False


class Person:
    """Somebody at the page."""

    def __init__(self, page: Any, url: str) -> None:
        self.page, self.url = page, url
        self.complaints: list[str] = []
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda said: self._hear(said.type, said.text))

    def _hear(self, kind: str, text: str) -> None:
        """Every error but those of a network that the test has cut."""
        if kind == "error" and "Failed to load resource" not in text:
            self.complaints.append(text)

    def come(self, name: str | None = "Ann", where: str = "/") -> Person:
        self.page.goto(self.url + where)
        if name is not None:
            self.page.fill("#name", name)
            self.page.keyboard.press("Enter")
        return self

    def see_pair(self) -> str:
        """Wait until a pair takes an answer; its id."""
        self.page.wait_for_selector(OPEN, timeout=20_000)
        return self.page.get_attribute("#answers", "data-open")

    def answer(self, choice: str, by: str = "key") -> str:
        """Answer the pair on the screen; its id."""
        pair = self.see_pair()
        if by == "key":
            self.page.keyboard.press(KEYS[choice])
        else:
            self.page.click(f'.answer[data-choice="{choice}"]')
        self.page.wait_for_selector(f'#answers:not([data-open="{pair}"])', timeout=5000)
        return pair

    def try_now(self) -> None:
        """Press "Try now", unless the page has tried by itself in this moment."""
        self.page.evaluate("document.getElementById('save-now').click()")

    def wait_saved(self) -> None:
        self.page.wait_for_selector('#save[data-state="saved"]', timeout=40_000)

    def text(self, selector: str) -> str:
        return " ".join(self.page.inner_text(selector).split())

    def wait_text(self, selector: str, part: str, seconds: float = 15) -> None:
        until(lambda: part in self.text(selector), f"{selector} says {part!r}", seconds, lambda: self.text(selector))

    def videos(self) -> list[dict[str, Any]]:
        return self.page.evaluate(
            """[...document.querySelectorAll('video.seen')].map(v => ({src: v.currentSrc, time: v.currentTime,
               paused: v.paused, rate: v.playbackRate, box: v.getBoundingClientRect().toJSON()}))"""
        )


def until(true: Any, what: str, seconds: float = 15, shown: Any = None) -> None:
    """Wait until `true()`; the test fails with `what` did not happen."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, f"waited {seconds} s until {what}" + (f"; it is {shown()!r}" if shown else "")
        time.sleep(0.05)
