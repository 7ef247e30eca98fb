"""What `ubp2 push` puts together and uploads, and that nobody's name is in it."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import shutil
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard

import ubp2
from ubp2.config.files import load_yaml
from ubp2.errors import UserError
from ubp2.preference.store import LabelStore
from ubp2.sharing.card import card, gather
from ubp2.sharing.export import policy_of
from ubp2.sharing.numpy_policy import load_policy
from ubp2.sharing.push import WRITTEN, assemble
from ubp2.sharing.uploading import Folder, upload
from ubp2.storage.runs import Run
from ubp2.terminal import cli

NAME, HOST, ADDRESS = "Ada Lovelace", "machine-of-ada", "http://desk.example:1"


@pytest.fixture(scope="module")
def run(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run in whose store a person has answered, too."""
    folder = shutil.copytree(finished, tmp_path_factory.mktemp("push") / "run")
    with LabelStore(folder / "labels.sqlite") as store:
        for given in store.given()[:3]:
            store.answer(given.query_id, 1.0, 1.0, annotator=NAME)
    text = (folder / "config.yaml").read_text(encoding="utf-8")
    (folder / "config.yaml").write_text(text.replace("url: null", f"url: {ADDRESS}"), encoding="utf-8")
    Run.open(folder).note({"host": HOST})
    return folder


def test_a_dry_run_writes_everything_and_uploads_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody answers there
    run = shutil.copytree(run, tmp_path / "run")
    with (run / "metrics.jsonl").open("a") as rows:
        rows.write('{"kind": "tra')  # it goes on, and is writing
    assert cli.main(["push", str(run), "me/reach", "--dry-run", "--json"]) == 0
    told = json.loads(capfd.readouterr().out)
    folder = tmp_path / "hub" / "reach"
    assert set(told["files"]) == {path.name for path in folder.iterdir()} - {WRITTEN}
    always = {"README.md", "policy.npz", "numpy_policy.py", "config.yaml", "metrics.jsonl", "curve.png", "clip.mp4"}
    assert set(told["files"]) == always
    obs = np.array([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(load_policy(folder / "policy.npz").act(obs), ubp2.load(run).act(obs), atol=2e-5)
    assert load_yaml(folder / "config.yaml").steps == 170
    assert [json.loads(row)["kind"] for row in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_card_is_one_that_the_hub_reads(run: Path, tmp_path: Path) -> None:
    assemble(run, "me/reach", tmp_path / "hub")
    loaded = ModelCard.load(tmp_path / "hub" / "README.md")
    data: Any = loaded.data
    assert data.library_name == "ubp2" and data.pipeline_tag == "reinforcement-learning"
    assert "toy/reach" in data.tags
    results = {result.metric_type: result.metric_value for result in data.eval_results}
    last = [row for row in map(json.loads, (run / "metrics.jsonl").open()) if row["kind"] == "eval"][-1]
    assert results["mean_reward"] == pytest.approx(last["policy/return"], abs=1e-4)
    assert results["success_rate"] == last["policy/success_any"]
    assert "14 by oracle, 3 by people (1 of them)" in loaded.text
    assert "170 of 170" in loaded.text and "curve.png" in loaded.text


def test_what_only_python_has_is_named(run: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(run, tmp_path / "run")
    metadata = policy_of(folder).metadata
    text = card(gather(Run.open(folder), metadata), "me/reach", ["policy.npz"])
    assert "again: `ubp2 train --config config.yaml`." in text
    config = (folder / "config.yaml").read_text(encoding="utf-8")
    (folder / "config.yaml").write_text(config.replace("imported: 0", "imported: 30"), encoding="utf-8")
    text = card(gather(Run.open(folder), metadata), "me/reach", ["policy.npz"])
    assert "; the 30 labels of other runs that it learned from are not (`--labels`)" in text
    Run.open(folder).note({"custom_environment": True, "custom_teacher": True})
    text = card(gather(Run.open(folder), metadata), "me/reach", ["policy.npz"])
    assert "its environment and its teacher, given from Python, are not" in text and "again:" not in text


def test_no_name_address_or_host_is_published(run: Path, tmp_path: Path) -> None:
    assemble(run, "me/reach", tmp_path / "without")
    assert not (tmp_path / "without" / "labels.jsonl.gz").exists()
    assemble(run, "me/reach", tmp_path / "with", with_labels=True)
    labels = tmp_path / "with" / "labels.jsonl.gz"
    texts = [path.read_bytes() for path in [*(tmp_path / "without").iterdir(), *(tmp_path / "with").iterdir()]]
    texts.append(gzip.decompress(labels.read_bytes()))
    secrets = [NAME, ADDRESS, HOST, str(run)]
    assert [secret for secret in secrets for text in texts if secret.encode() in text] == []


def test_a_folder_is_used_again_but_nothing_in_it_survives(run: Path, tmp_path: Path) -> None:
    """Labels of an earlier time must not be uploaded because they were forgotten there."""
    assemble(run, "me/reach", tmp_path / "hub", with_labels=True)
    again = assemble(run, "me/reach", tmp_path / "hub")
    assert "labels.jsonl.gz" not in again.files and not (tmp_path / "hub" / "labels.jsonl.gz").exists()
    (tmp_path / "hub" / "notes.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="holds other things \\(notes.txt\\)"):
        assemble(run, "me/reach", tmp_path / "hub")


def test_what_a_person_wrote_is_not_deleted(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run, an edited card, the upload: as the docs tell it."""
    for slow in ("_draw", "_film"):
        monkeypatch.setattr(f"ubp2.sharing.push.{slow}", lambda run, out: [])
    out = tmp_path / "hub"
    assemble(run, "me/reach", out)
    (out / "README.md").write_text("what the comparisons meant", encoding="utf-8")
    for _ in range(2):
        again = assemble(run, "me/reach", out)
        assert (out / "README.md").read_text(encoding="utf-8") == "what the comparisons meant"
        assert "README.md" in again.files and any("README.md was edited and stays" in note for note in again.notes)
    (out / "README.md").unlink()
    assert assemble(run, "me/reach", out).notes == [] and (out / "README.md").stat().st_size > 1000
    (out / "config.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"config.yaml in .* is not as ubp2 push recorded it"):
        assemble(run, "me/reach", out)
    assert (out / "config.yaml").read_text(encoding="utf-8") == "mine" and (out / "policy.npz").is_file()

    own = tmp_path / "own"
    own.mkdir()
    (own / "README.md").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match=r"own holds other things \(README.md\), which this ubp2 push has no record of"):
        assemble(run, "me/reach", own)
    assert [path.name for path in own.iterdir()] == ["README.md"]


@contextlib.contextmanager
def hub_server(refuse: bool = False) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """A Hub on this machine that knows what an upload asks; what it was sent comes back as (path, content)."""
    sent: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            rows = [json.loads(line) for line in body.splitlines()]
            sent.append((self.path, rows))
            address = f"http://{self.headers['Host']}/me/reach"
            answer: dict[str, Any] = {"url": address}
            if "/preupload/" in self.path:
                files = [{"path": each["path"], "uploadMode": "regular"} for each in rows[0]["files"]]
                answer = {"files": [{**each, "shouldIgnore": False} for each in files]}
            elif "/commit/" in self.path:
                answer = {"commitUrl": f"{address}/commit/1", "commitOid": "1", "success": True}
            content = json.dumps({"error": "no"} if refuse else answer).encode()
            self.send_response(403 if refuse else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def small(tmp_path: Path) -> Folder:
    """A folder to upload, with something in it that nobody listed."""
    for name in ("README.md", "policy.npz", "secret.txt"):
        (tmp_path / name).write_text(f"content of {name}", encoding="utf-8")
    return Folder(tmp_path, ["README.md", "policy.npz"], [])


def test_the_upload_sends_what_is_listed(small: Folder) -> None:
    from huggingface_hub import HfApi

    with hub_server() as (url, sent):
        address = upload(HfApi(endpoint=url, token="hf_mine"), "me/reach", small, private=True)
    assert address.endswith("/me/reach")
    created = next(rows[0] for path, rows in sent if path.endswith("/repos/create"))
    assert created.get("private") or created.get("visibility") == "private"
    commit = next(rows for path, rows in sent if "/commit/" in path)
    files = {row["value"]["path"]: base64.b64decode(row["value"]["content"]) for row in commit if row["key"] == "file"}
    assert files == {name: f"content of {name}".encode() for name in small.files}


def test_what_the_hub_or_the_network_refuses_is_told(small: Folder) -> None:
    from huggingface_hub import HfApi

    with hub_server(refuse=True) as (url, _), pytest.raises(UserError, match="the Hub did not take me/reach: .*403"):
        upload(HfApi(endpoint=url, token="hf_mine"), "me/reach", small, private=False)
    with pytest.raises(UserError, match="the Hub did not take me/reach: .*check the name, the rights"):
        upload(HfApi(endpoint=url, token="hf_mine"), "me/reach", small, private=False)  # the server is gone


@pytest.mark.parametrize(
    ("repo", "sentence"),
    [
        ("pendulum", "expected a repository as owner/name, such as me/door-close-ubp2, got 'pendulum'"),
        ("me/..", "expected a repository as owner/name"),
        ("me/reach", "the Hub does not know you: log in with 'hf auth login', or set HF_TOKEN"),
    ],
)
def test_mistakes_are_told(
    repo: str, sentence: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert cli.main(["push", str(run), repo]) == 2
    assert sentence in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_package_is_named_where_it_is_missing(run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert cli.main(["push", str(run), "me/reach"]) == 2
    assert "needs the package huggingface_hub: pip install 'ubp2[hub]'" in capsys.readouterr().err
