"""The label server as a process: ports, locks, the command, and what happens when it is killed or the disk is full."""

from __future__ import annotations

import http.client
import json
import random
import re
import resource
import socket
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.labelling import crowd, processes
from tests.labelling.conftest import FakeClips, make_run
from tests.waiting import until
from ubp2.errors import UserError
from ubp2.labelling import serve
from ubp2.labelling.serve import default_instruction, start
from ubp2.preference.store import LabelStore
from ubp2.storage import locks
from ubp2.terminal.cli import main


def call(port: int, what: str, body: dict[str, Any] | None = None, **headers: str) -> tuple[int, dict[str, Any]]:
    content = None if body is None else json.dumps(body).encode()
    url = f"http://127.0.0.1:{port}/api/{what}"
    request = urllib.request.Request(url, content, {"Content-Type": "application/json", **headers})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.load(reply)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    make_run(tmp_path / "run")
    return tmp_path / "run"


def test_a_thread_serves_and_stops_and_can_be_started_again(run: Path):
    clips = FakeClips(run)
    served = start(run, port=0, clips=clips, instruction="Look at the <b>gripper</b>.")
    try:
        assert served.url == f"http://127.0.0.1:{served.port}/" and served.token is None and served.alive
        status, about = call(served.port, "session")
        assert status == 200 and about["env"] == "toy/reach" and about["title"] == "run" and about["run"]
        assert about["instruction"] == "Look at the <b>gripper</b>."
        status, hand = call(served.port, "next", {"annotator": "ann"})
        assert status == 200 and hand["pair"]["left"]["ready"] and hand["progress"]["trainer"] == "gone"
        with urllib.request.urlopen(f"{served.url}static/style.css") as reply:
            assert reply.headers["Content-Type"].startswith("text/css")
        with pytest.raises(UserError, match="is served already, by process"):
            start(run, port=0, clips=FakeClips(run))
    finally:
        served.stop()
        served.stop()
    assert clips.closed and not served.alive
    start(run, port=0, clips=FakeClips(run)).stop()


def test_a_trainer_beside_it_is_seen_and_its_end_too(run: Path):
    served = start(run, port=0, clips=FakeClips(run))
    try:
        trainer = processes.Process([sys.executable, "-c", _HOLD, str(run)])
        until(lambda: locks.held(run))
        assert call(served.port, "progress")[1]["trainer"] == "running"
        trainer.kill()
        assert call(served.port, "progress")[1]["trainer"] == "gone"
        status, hand = call(served.port, "next", {"annotator": "ann"})
        assert status == 200 and hand["pair"] is not None  # what was asked can still be answered
    finally:
        served.stop()


_HOLD = (
    "import sys, time, pathlib; from ubp2.storage import locks; locks.take(pathlib.Path(sys.argv[1])); time.sleep(60)"
)


def test_a_port_that_is_taken_is_left_for_the_next(run: Path, monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        served = start(run, port=port, clips=FakeClips(run))
        try:
            assert port < served.port <= port + serve.FURTHER and call(served.port, "progress")[0] == 200
        finally:
            served.stop()
        monkeypatch.setattr(serve, "FURTHER", 0)
        with pytest.raises(UserError, match="are all taken; name another with --port"):
            start(run, port=port, clips=FakeClips(run))
    with pytest.raises(UserError, match="name another with --host"):
        start(run, host="203.0.113.7", port=0, clips=FakeClips(run))
    with pytest.raises(UserError, match="no address of this machine"):
        start(run, host="no such host", port=0, clips=FakeClips(run))
    start(run, port=0, clips=FakeClips(run)).stop()  # nothing that failed keeps the lock


def test_other_addresses_need_a_token(run: Path):
    served = start(run, host="0.0.0.0", port=0, clips=FakeClips(run))
    try:
        assert served.token and f"?token={served.token}" in served.url
        if served.figures:  # None on a machine without a network
            # tests/conftest.py keeps proxies from 127.0.0.1 alone, and this is the address of the machine
            directly = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with directly.open(served.figures) as reply:
                assert reply.status == 200 and re.fullmatch(r"http://[\d.]+:\d+/\?token=.*", served.figures)
        assert call(served.port, "session")[0] == 401
        assert call(served.port, "session", Authorization=f"Bearer {served.token}")[0] == 200
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        connection.request("GET", f"/?token={served.token}")
        cookie = connection.getresponse().headers["Set-Cookie"].partition(";")[0]
        assert call(served.port, "session", Cookie=cookie)[0] == 200
    finally:
        served.stop()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--port", "70000"], "--port lies between"),
        (["--overlap", "0"], "--overlap is at least 1"),
        (["--again", "1.5"], "--again is a share"),
        (["--token", "short"], "at least 22"),
        (["--instruction", "x" * 5000], "at most 4000"),
        (["--pairs", "50"], "are about a dataset"),
        (["--known-as", "https://desk"], "takes a name alone"),
        (["--known-as", "desk:443"], "takes a name alone"),
    ],
)
def test_bad_options_are_sentences(run: Path, options: list[str], words: str, capsys: pytest.CaptureFixture[str]):
    assert main(["label", str(run), "--no-browser", *options]) == 2
    assert words in capsys.readouterr().err


def test_the_command_says_where_and_what_came_of_it(tmp_path: Path):
    crowd.record(tmp_path / "run", episodes=2)
    process = processes.server(tmp_path / "run", processes.free_port(), "--json", "--token", "new")
    code, result, said = process.stop()
    assert json.loads(result)["answered"] == 0 and "token" not in result
    assert code == 0 and "label page: http://127.0.0.1:" in said and "?token=" in said and "Traceback" not in said


def test_the_instruction_names_the_task():
    assert "door close" in default_instruction("metaworld/door-close")
    assert "green ring" in default_instruction("toy/reach")
    assert "green ring" in default_instruction("toy-visual/reach")
    assert "task" not in default_instruction("dataset")  # which files do not name


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="Linux alone limits another process")
def test_a_full_disk_loses_nothing(tmp_path: Path):
    """The system refuses every write to the files of the server, as a full disk does."""
    make_run(tmp_path / "run")
    port = processes.free_port()
    process = processes.server(tmp_path / "run", port)
    try:
        _, hand = call(port, "next", {"annotator": "ann"})
        said = {"annotator": "ann", "pair": hand["pair"]["id"], "choice": "left", "key": "key-00001", "seconds": 1}
        before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100, before[1]))
        for _ in range(3):
            status, reply = call(port, "answer", said)
            assert status == 503 and "cannot save now" in reply["error"] and str(tmp_path) not in reply["error"]
        assert call(port, "next", {"annotator": "ann"})[1]["pair"]["id"] == hand["pair"]["id"]
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
        status, reply = call(port, "answer", said)
        assert status == 200 and reply["stored"] is True and reply["progress"]["mine"] == 1
    finally:
        process.kill()
    with LabelStore(tmp_path / "run" / "labels.sqlite") as store:
        assert len(store.given()) == 1


@pytest.mark.parametrize("kills", [6, pytest.param(30, marks=pytest.mark.slow)])
def test_what_was_acknowledged_outlives_kills(tmp_path: Path, kills: int):
    """Server and trainer are killed at random while people answer; benchmarks/label_faults.py does it 200 times."""
    folder, chance = tmp_path / "run", random.Random(0)
    crowd.record(folder)
    port, trainer = processes.free_port(), processes.trainer(folder)
    people = crowd.Crowd(port, 6, think=0.01, patient=True, repeat=0.2, undo=0.05)
    process = processes.server(folder, port)
    people.start()
    for i in range(kills):
        time.sleep(chance.uniform(0.0, 0.4))
        process.kill()
        if i % 3 == 0:
            trainer.kill()
            trainer = processes.trainer(folder)
        process = processes.server(folder, port)
    until(lambda: len(people.stored) > 50 or people.errors)
    people.stop()
    process.kill()
    trainer.kill()
    assert not people.errors and people.away > 0
    assert crowd.lost_or_doubled(folder, people.stored) == []
