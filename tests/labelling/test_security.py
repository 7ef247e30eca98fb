"""Who may talk to the label server: every refusal that the page promises, against the whole application."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.labelling.conftest import Clock, Place, make_run
from tests.labelling.visitor import SCRIPT, _finished, browser
from ubp2.errors import UserError
from ubp2.labelling.app import STATIC, static_files
from ubp2.labelling.desk import Rules
from ubp2.labelling.rates import Rates
from ubp2.labelling.security import Guard, check_token, is_loopback, known_names
from ubp2.labelling.serve import start
from ubp2.labelling.wire import LONGEST

TOKEN = "t" * 22 + "-secret"


@pytest.fixture
def here(tmp_path: Path, clock: Clock) -> Iterator[Place]:
    make_run(tmp_path / "run")
    place = Place(tmp_path / "run", Rules(again=0.0), clock)
    yield place
    place.store.close()


def test_every_answer_carries_the_headers(here: Place):
    open_page = browser(here)
    for url in ("/api/session", "/api/progress", "/nowhere", "/static/nothing.js", "/clips/x/y.mp4"):
        headers = open_page.get(url).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy and "http" not in policy
        assert headers["x-content-type-options"] == "nosniff" and headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
    assert open_page.get("/api/progress").headers["cache-control"] == "no-store"
    refused = browser(here, TOKEN).get("/api/session")
    assert refused.status_code == 401 and "content-security-policy" in refused.headers


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8642", "localhost.evil.example", "", "[", "10.1.2.3"])
def test_a_wrong_host_is_refused(here: Place, host: str):
    assert browser(here).get("/api/session", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:9999", "127.0.0.1:8642", "[::1]:8642", "LOCALHOST:1"])
def test_names_of_this_machine_are_known_through_any_tunnel(here: Place, host: str):
    assert browser(here).get("/api/session", headers={"Host": host}).status_code == 200


def test_a_server_for_all_knows_its_addresses_and_no_other_names(here: Place):
    open_page = browser(here, TOKEN, any_address=True)
    token = {"Authorization": f"Bearer {TOKEN}"}
    assert open_page.get("/api/session", headers={"Host": "10.1.2.3:80", **token}).status_code == 200
    assert open_page.get("/api/session", headers={"Host": "evil.example", **token}).status_code == 403
    assert "lab.example" in known_names("0.0.0.0", ["Lab.Example"])


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://localhost:1", "http://127.0.0.1:8642", "x", "http://["]
)
@pytest.mark.parametrize("url", ["/api/next", "/api/answer", "/api/undo", "/api/broken", "/api/leave"])
def test_a_foreign_origin_is_refused(here: Place, origin: str, url: str):
    reply = browser(here).post(url, {"annotator": "ann"}, headers={"Origin": origin})
    assert reply.status_code == 403 and "another site" in reply.json()["error"]


def test_our_own_origin_passes_also_behind_tls(here: Place):
    for origin in ("http://localhost:8642", "https://localhost:8642"):
        reply = browser(here).post("/api/next", {"annotator": "ann"}, headers={"Origin": origin})
        assert reply.status_code == 200


def test_what_another_site_loads_is_refused_and_a_link_to_the_page_is_not(here: Place):
    open_page, cross = browser(here), {"Sec-Fetch-Site": "cross-site"}
    assert open_page.get("/api/progress", headers=cross).status_code == 403
    assert open_page.get("/clips/clip-0-1-3/top.mp4", headers=cross | {"Sec-Fetch-Mode": "no-cors"}).status_code == 403
    assert open_page.get("/", headers=cross | {"Sec-Fetch-Mode": "navigate"}).status_code != 403


@pytest.mark.parametrize(
    "url", ["/", "/api/session", "/api/progress", "/api/dashboard", "/static/app.js", "/clips/clip-0-1-3/top.mp4"]
)
def test_nothing_is_given_away_without_the_token(here: Place, url: str):
    guarded = browser(here, TOKEN)
    assert guarded.get(url).status_code == 401
    assert guarded.get(url, headers={"Authorization": "Bearer " + TOKEN[:-1]}).status_code == 401
    assert guarded.get(url, headers={"Authorization": f"Basic {TOKEN}"}).status_code == 401
    assert guarded.get(url, headers={"Cookie": f"{guarded.guard.cookie}=no"}).status_code == 401
    assert guarded.get(url + "?token=wrong").status_code == 401
    assert guarded.get(url, headers={"Authorization": f"Bearer {TOKEN}"}).status_code != 401


@pytest.mark.parametrize("url", ["/api/next", "/api/answer", "/api/undo", "/api/broken", "/api/leave"])
def test_nothing_is_written_without_the_token(here: Place, url: str):
    pair = here.shown("ann")
    body = {"annotator": "ann", "pair": pair, "choice": "left", "key": "key-00001", "reason": "x"}
    assert browser(here, TOKEN).post(url, body).status_code == 401 and here.store.given() == []


def test_the_token_of_the_address_becomes_a_cookie_that_scripts_and_other_sites_never_see(here: Place):
    guarded = browser(here, TOKEN)
    assert guarded.get(f"/api/session?token={TOKEN}").status_code == 401  # only where the page is opened
    assert "<p>a token is needed" in guarded.get("/").text  # for a person
    arrived = guarded.get(f"/?token={TOKEN}")
    cookie = arrived.headers["set-cookie"]
    assert arrived.status_code == 200 and "HttpOnly" in cookie and "SameSite=Strict" in cookie
    assert TOKEN not in arrived.text and 'url=/"' in arrived.text  # leads on to an address without it
    name, _, value = cookie.partition(";")[0].partition("=")
    assert guarded.get("/api/session", headers={"Cookie": f"{name}={value}"}).status_code == 200
    for other in ("a b", 'state={"a": 1}', "x=[1,2]", "="):  # what another program of this host has set
        cookies = {"Cookie": f"{other}; {name}={value}; other=1"}
        assert guarded.get("/api/session", headers=cookies).status_code == 200
    assert Guard(None, frozenset(), "another" * 4).cookie != name  # ports do not keep cookies apart


def test_wrong_tokens_cannot_be_tried_for_ever(here: Place):
    guarded = browser(here, TOKEN)
    replies = [guarded.get("/api/session", headers={"Authorization": f"Bearer {i}"}).status_code for i in range(40)]
    assert replies[0] == 401 and replies[-1] == 429
    assert guarded.get("/api/session", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd",
        "/static/..\\app.py", "/../../etc/passwd", "/clips/../label.key", "/clips/..%2flabel.key/top.mp4",
        "/clips/clip-0-1-3/../../label.key",
        "/clips/clip-0-1-3/..%2f..%2flabel.key", "/clips/clip-0-1-3/top.key", "/clips/clip-0-1-3//etc/passwd.mp4",
        "/clips/clip-0-1-3/\0.mp4", "/clips/" + "a" * 5000 + "/top.mp4", "/label.key", "/labels.sqlite", "/static/",
        "/clips/clip-0-1-3/other.mp4", "/clips/nothing/top.mp4",
    ],
)  # fmt: skip
def test_no_path_leads_out(here: Place, path: str):
    (here.folder / "label.key").write_text("the secret")
    status, body = browser(here).raw(path)
    assert status == 404 and b"secret" not in body and b"root:" not in body and b"import" not in body
    assert str(here.folder).encode() not in body


def test_clips_come_in_parts(here: Place):
    open_page, url = browser(here), "/clips/clip-0-1-3/front%20view.mp4"
    whole = open_page.get(url)
    assert whole.status_code == 200 and whole.headers["content-type"] == "video/mp4" and len(whole.content) == 2048
    part = open_page.get(url, headers={"Range": "bytes=10-19"})
    assert part.status_code == 206 and part.content == whole.content[10:20]
    assert part.headers["content-range"] == "bytes 10-19/2048"
    assert open_page.get(url, headers={"Range": "bytes=9999-"}).status_code == 416
    here.clips.file.unlink()
    assert open_page.get(url).status_code == 404


def test_an_oversized_body_is_refused_said_or_unsaid(here: Place):
    open_page = browser(here)
    large = b'{"annotator": "' + b"a" * 20_000 + b'"}'
    json_type = {"Content-Type": "application/json"}
    assert open_page.post("/api/next", content=large, headers=json_type).status_code == 413

    async def parts():
        for _ in range(30):
            yield b" " * 1000

    assert open_page.post("/api/next", content=parts(), headers=json_type).status_code == 413
    lied = open_page.post("/api/next", content=b"{}", headers=json_type | {"Content-Length": "x"})
    assert lied.status_code == 400


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_wrong_content_type_is_refused(here: Place, kind: str):
    reply = browser(here).post("/api/next", content=b'{"annotator": "ann"}', headers={"Content-Type": kind})
    assert reply.status_code == 415


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"annotator": NaN}', b"[" * 8000, b'{"annotator": "a", }'],
)
def test_what_is_no_json_object_is_refused(here: Place, content: bytes):
    reply = browser(here).post("/api/next", content=content, headers={"Content-Type": "application/json"})
    assert reply.status_code == 400 and "error" in reply.json()


@pytest.mark.parametrize(
    "change",
    [
        {"annotator": ""}, {"annotator": None}, {"annotator": 5}, {"annotator": "a" * 41}, {"annotator": "a\0b"},
        {"annotator": "\u202eann"}, {"annotator": "oracle"}, {"annotator": "Oracle "}, {"annotator": "\ud800"},
        {"choice": "Left"}, {"choice": None}, {"choice": ["left"]}, {"key": "short"}, {"key": "a" * 81},
        {"key": "k/../../1"}, {"key": None}, {"seconds": -1}, {"seconds": "1"}, {"seconds": True}, {"pair": 1},
        {"pair": "q" * 101}, {"pair": None},
    ],
)  # fmt: skip
def test_wrong_fields_are_refused(here: Place, change: dict[str, Any]):
    good = {"annotator": "ann", "pair": here.shown("ann"), "choice": "left", "key": "key-00001", "seconds": 1}
    body = json.dumps(good | change).encode()
    reply = browser(here).post("/api/answer", content=body, headers={"Content-Type": "application/json"})
    assert reply.status_code == 400 and here.store.given() == []


def test_rates_are_limited_by_name_and_by_address(here: Place, clock: Clock):
    open_page = browser(here, of_a_name=Rates(per_second=20, burst=5, clock=clock))
    replies = [open_page.post("/api/next", {"annotator": "ann"}) for _ in range(6)]
    assert [reply.status_code for reply in replies] == [200] * 5 + [429] and replies[-1].headers["retry-after"]
    assert open_page.post("/api/next", {"annotator": "bob"}).status_code == 200
    few = browser(here, rates=Rates(per_second=1, burst=3, clock=clock))
    assert [few.get("/api/session").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_rates_recover_and_forget(clock: Clock):
    rates = Rates(per_second=2, burst=4, clock=clock, most=10)
    assert [rates.allow("a") for _ in range(5)] == [True] * 4 + [False]
    clock.now += 1
    assert [rates.allow("a") for _ in range(3)] == [True, True, False]
    for i in range(50):
        rates.allow(str(i))
    assert len(rates._buckets) == 10


def test_script_in_the_instruction_and_in_names_is_only_ever_data(here: Place):
    open_page = browser(here)
    about = open_page.get("/api/session")
    assert about.headers["content-type"] == "application/json" and about.json()["instruction"] == SCRIPT
    assert SCRIPT not in open_page.get("/").text
    name = "<b>ann</b>"
    pair = open_page.post("/api/next", {"annotator": name}).json()["pair"]
    said = {"annotator": name, "pair": pair["id"], "reason": SCRIPT, "key": "key-00001"}
    assert open_page.post("/api/broken", said).status_code == 200
    for url in ("/api/dashboard", "/api/progress"):
        assert open_page.get(url).headers["content-type"] == "application/json"
    assert open_page.get("/" + SCRIPT).headers["content-type"] == "application/json"


def test_the_page_keeps_the_policy_that_it_is_served_under(here: Place):
    """No script or style in the page itself, nothing from elsewhere, and no text that becomes markup."""
    files = static_files(STATIC)
    page = files["index.html"][0].decode()
    assert {name for name in files if name.endswith(".js")} == set(re.findall(r'"/static/(\w+\.js)"', page)), (
        "preloaded"
    )
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+\s*=|\sstyle\s*=|<style|javascript:", page)
    for name, (content, kind, _) in files.items():
        text = content.decode() if kind.startswith("text/") else ""
        assert not re.search(r"(?<!xmlns=\")https?://(?!www\.w3\.org/)", text), f"{name} names another site"
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )


def test_a_page_of_another_run_is_told_so_and_its_answer_not_taken(here: Place):
    open_page, pair = browser(here), here.shown("ann")
    said = {"annotator": "ann", "pair": pair, "choice": "left", "key": "key-00001", "reason": "x"}
    other = {"ubp2-run": "another"}
    for url in ("/api/next", "/api/answer", "/api/undo", "/api/broken", "/api/leave"):
        reply = open_page.post(url, said, headers=other)
        assert reply.status_code == 421 and reply.json() == {"error": "another run is served here; reload the page"}
    assert open_page.get("/api/dashboard", headers=other).status_code == 421 and here.store.given() == []
    assert open_page.post("/api/answer", said, headers={"ubp2-run": "ours"}).json()["stored"] is True


def test_a_client_that_is_gone_before_it_has_said_all_is_no_mistake_of_the_server(here: Place):
    guard, sent = browser(here).guard, []
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": "/api/answer", "headers": headers, "query_string": b""}

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    _finished(guard, scope, gone, send)  # raises what would be a traceback in the terminal
    assert sent[0]["status"] == 400


def test_seconds_may_be_any_number(here: Place):
    said = {"annotator": "ann", "pair": here.shown("ann"), "choice": "left", "key": "key-00001", "seconds": 10**4000}
    assert browser(here).post("/api/answer", said).status_code == 200
    assert here.store.given()[0].seconds == LONGEST


def test_other_methods_and_websockets_are_refused(here: Place):

    open_page = browser(here)
    assert open_page.get("/api/answer").status_code == 405 and open_page.post("/api/session", {}).status_code == 405
    sent: list[dict[str, Any]] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    _finished(open_page.guard, {"type": "websocket", "headers": []}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


def test_a_full_disk_is_said_and_the_answer_can_be_sent_again(
    here: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    open_page = browser(here)

    def fails(said: str, *_: Any, **__: Any) -> int:
        raise UserError(f"{said}; nothing written so far is lost: free some")

    full = partial(fails, "cannot use /home/me/labels.sqlite: the disk is full")
    pair = open_page.post("/api/next", {"annotator": "ann"}).json()["pair"]["id"]
    said = {"annotator": "ann", "pair": pair, "choice": "left", "key": "key-00001", "seconds": 2}
    monkeypatch.setattr(here.store, "answer", full)
    with caplog.at_level(logging.ERROR):
        reply = open_page.post("/api/answer", said)
    assert reply.status_code == 503 and "the disk is full" in reply.json()["error"] and reply.headers["retry-after"]
    assert "/home" not in reply.text and "/home/me/labels.sqlite" in caplog.text
    monkeypatch.setattr(here.desk, "progress", full)
    told = open_page.post("/api/next", {"annotator": "ann"}).json()["error"]
    assert told == "the server cannot use its files now (the disk is full); this is tried again"
    monkeypatch.setattr(here.desk, "progress", partial(fails, "/home/me/labels.sqlite is damaged (malformed)"))
    told = open_page.post("/api/next", {"annotator": "ann"}).json()["error"]
    assert told == "the server cannot use its files now (its terminal shows why); this is tried again"
    monkeypatch.undo()
    assert open_page.post("/api/next", {"annotator": "ann"}).json()["pair"]["id"] == pair
    assert open_page.post("/api/answer", said).json()["stored"] is True
    assert len(here.store.given()) == 1


def test_tokens_and_addresses():
    assert is_loopback("127.0.0.1") and is_loopback("::1") and is_loopback("localhost") and is_loopback("127.9.9.9")
    assert not is_loopback("0.0.0.0") and not is_loopback("192.168.0.1") and not is_loopback("example.org")
    assert check_token("127.0.0.1", None, b"a") is None
    own = check_token("0.0.0.0", None, b"a")
    assert own and len(own) >= 22 and own == check_token("0.0.0.0", None, b"a")  # a restart knows its browsers
    assert own != check_token("0.0.0.0", None, b"b")
    fresh = check_token("127.0.0.1", "new", b"a")
    assert fresh and len(fresh) >= 22 and fresh != check_token("127.0.0.1", "new", b"a")
    assert check_token("127.0.0.1", TOKEN, b"a") == TOKEN
    for weak in ("", "secret", "a" * 21, *("a" * 30 + bad for bad in ' +;&#%"/'), "é" * 30):
        with pytest.raises(UserError, match="at least 22"):
            check_token("127.0.0.1", weak, b"a")


def test_start_refuses_what_is_no_run(tmp_path: Path):
    with pytest.raises(UserError, match="not a run folder"):
        start(tmp_path)
