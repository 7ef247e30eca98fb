"""Who may talk to the label page, and how much: names, origins, the token, sizes and rates.

The guard stands before every route, so that a new route is protected without its author thinking of it. It answers
three dangers: another web site that the annotator has open (Host and Origin checks, no CORS, a strict cookie), another
machine (the token), and a client that sends too much (sizes and rates).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import html
import ipaddress
import json
import re
import secrets
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.requests import cookie_parser

from ubp2.errors import UserError
from ubp2.labelling.rates import Rates

__all__ = ["HEADERS", "TRAINER", "Guard", "Refused", "check_token", "is_loopback", "known_names", "trainer_token"]

BODY_BYTES = 16 * 1024
TRAINER_BYTES = 256 * 2**20  # episodes and sessions of questions
TRAINER = "/api/trainer/"  # what only a trainer on another machine asks for
TOKEN_CHARACTERS = 22  # 128 bits in base64
_TOKEN = re.compile(r"[A-Za-z0-9._~-]*")  # what stands as it is in an address and in a cookie
COOKIE_SECONDS = 7 * 24 * 3600
LOOPBACK = ("localhost", "127.0.0.1", "::1")

HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "media-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",  # the address the token came in must not travel on
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Refused(Exception):
    """A request that is answered with `status` and one sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_token(host: str, token: str | None, secret: bytes) -> str | None:
    """The token to serve with: what was given, else None where nobody else can connect, else one of 192 bits.

    That one is made of the secret of the run, so that a server which was killed and started again knows its browsers.
    """
    if token is None:
        own = hmac.new(secret, b"token", hashlib.sha256).digest()[:24]
        return None if is_loopback(host) else base64.urlsafe_b64encode(own).decode()
    if token == "new":
        return secrets.token_urlsafe(24)
    if len(token) < TOKEN_CHARACTERS or not _TOKEN.fullmatch(token):
        got = len(token) if _TOKEN.fullmatch(token) else "others among them"
        raise UserError(
            f"a token has at least {TOKEN_CHARACTERS} characters of A-Z, a-z, 0-9, dot, dash, underline and tilde, "
            f"got {got}; --token new makes one, and so does UBP2_LABEL_TOKEN=new"
        )
    return token


def trainer_token(secret: bytes) -> str:
    """What a trainer on another machine must know; the same again after a restart."""
    return base64.urlsafe_b64encode(hmac.new(secret, b"trainer", hashlib.sha256).digest()[:24]).decode()


def known_names(host: str, more: Iterable[str] = ()) -> frozenset[str]:
    """Names that a Host header may have. Addresses in figures are no names: nobody can point them elsewhere."""
    names = {*LOOPBACK, host.lower(), *(name.lower() for name in more)}
    if not is_loopback(host):
        names |= {socket.gethostname().lower(), socket.getfqdn().lower()}
    return frozenset(names)


@dataclass
class Guard:
    """An ASGI application around `app` that lets through what may pass, and writes the headers of every answer."""

    app: Any
    names: frozenset[str]
    token: str | None = None
    trainer_token: str | None = None  # None: there is no trainer elsewhere
    any_address: bool = False  # bound to all interfaces: every address of this machine is its name
    rates: Rates = field(default_factory=lambda: Rates(per_second=300, burst=1500))
    failures: Rates = field(default_factory=lambda: Rates(per_second=0.5, burst=20))

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        client = (scope.get("client") or ("unknown", 0))[0]
        add: dict[str, str] = dict(HEADERS)
        try:
            arrived = self._admit(scope, headers, client)
            if arrived is not None:
                return await _respond(send, *arrived, add)
            most = TRAINER_BYTES if scope["path"].startswith(TRAINER) else BODY_BYTES
            receive = _limited(receive, headers, most)
            await self.app(scope, receive, _with_headers(send, add))
        except Refused as refused:
            said = _sentence(refused, page=scope["path"] == "/")
            await _respond(send, refused.status, *said, {"cache-control": "no-store"}, add)

    def _admit(
        self, scope: dict[str, Any], headers: dict[str, str], client: str
    ) -> tuple[int, bytes, str, dict[str, str]] | None:
        """Raise `Refused`, or return the answer to an address with the token, or None: go on."""
        if not self.rates.allow(client):
            raise Refused(429, "too many requests from this address; wait a moment")
        host = headers.get("host", "")
        if not self._knows(host):
            raise Refused(403, "this page is not served under that name; open the address that the server printed")
        _check_origin(scope, headers, host)
        if scope["path"].startswith(TRAINER):
            return self._admit_trainer(headers, client)
        if self.token is None:
            return None
        arriving = scope["path"] == "/" and scope["method"] == "GET"
        query = parse_qs(scope.get("query_string", b"").decode("latin-1")) if arriving else {}
        offered = [*query.get("token", []), *_bearer(headers), *self._cookie(headers)]
        self._require(self.token, offered, client, "open the address with ?token= that the server printed")
        return self._welcome() if "token" in query else None

    def _admit_trainer(self, headers: dict[str, str], client: str) -> None:
        """A trainer has a token of its own: what it sends is run and shown, and annotators only answer."""
        if self.trainer_token is None:
            raise Refused(404, "this page is for a run on its own machine; start it with --remote for one elsewhere")
        self._require(self.trainer_token, _bearer(headers), client, "set the one for trainers that the server printed")

    def _require(self, token: str, offered: list[str], client: str, advice: str) -> None:
        if any(hmac.compare_digest(each.encode(), token.encode()) for each in offered):
            return
        if offered and not self.failures.allow(client):
            raise Refused(429, "too many wrong tokens from this address; wait a minute")
        what = "that is not the token" if offered else "a token is needed"
        raise Refused(401, f"{what}; {advice} when it started")

    def _knows(self, host: str) -> bool:
        name = _name(host)
        if name in self.names:
            return True
        return self.any_address and _is_address(name)

    def _cookie(self, headers: dict[str, str]) -> list[str]:
        found = cookie_parser(headers.get("cookie", "")).get(self.cookie)  # whatever other programs of this host set
        return [found] if found else []

    @property
    def cookie(self) -> str:
        """Name of the cookie. Cookies know no ports: two servers of one machine must not share a name."""
        return "ubp2-" + hashlib.sha256((self.token or "").encode()).hexdigest()[:12]

    def _welcome(self) -> tuple[int, bytes, str, dict[str, str]]:
        """Turn the token of the address into a cookie, and lead on to an address without it.

        The page leads on, not a redirect: after a click on a link in a mail, a browser sends no strict cookie along a
        redirect, but does along what our own page asks for.
        """
        cookie = f"{self.cookie}={self.token}; Path=/; Max-Age={COOKIE_SECONDS}; HttpOnly; SameSite=Strict"
        body = (
            b'<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="0; url=/">'
            b'<title>Labelling</title><p><a href="/">Go on to the page</a></p></html>'
        )
        return 200, body, "text/html; charset=utf-8", {"set-cookie": cookie, "cache-control": "no-store"}


def _check_origin(scope: dict[str, Any], headers: dict[str, str], host: str) -> None:
    """Refuse what the page of another site sends; a link there may lead to our page, and to nothing else."""
    origin = headers.get("origin")
    if origin is not None and _place(origin) != host.lower():
        raise Refused(403, "the request comes from another site; open the page of this server itself")
    site, navigation = headers.get("sec-fetch-site"), headers.get("sec-fetch-mode") == "navigate"
    if site in ("cross-site", "same-site") and not (navigation and scope["method"] == "GET" and scope["path"] == "/"):
        raise Refused(403, "the request comes from another site; open the page of this server itself")


def _place(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _bearer(headers: dict[str, str]) -> list[str]:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return [value.strip()] if scheme.lower() == "bearer" else []


def _name(host: str) -> str:
    """The Host header without its port: localhost:8000, [::1]:8000."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _limited(receive: Any, headers: dict[str, str], most: int) -> Any:
    """`receive`, which refuses a body that is too large, said or unsaid."""
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        raise Refused(400, "Content-Length is not a number")
    if int(length) > most:
        raise Refused(413, f"a request has at most {most} bytes, this one has {length}")
    seen = 0

    async def counted() -> Any:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most:
            raise Refused(413, f"a request has at most {most} bytes, this one has more")
        return message

    return counted


def _with_headers(send: Any, add: dict[str, str]) -> Any:
    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            present = {name.lower() for name, _ in message["headers"]}
            more = [(n.encode(), v.encode()) for n, v in add.items() if n.encode() not in present]
            message = {**message, "headers": [*message["headers"], *more]}
        await send(message)

    return sending


def _sentence(refused: Refused, *, page: bool) -> tuple[bytes, str]:
    """The sentence for a program, or for a person who opened the page."""
    if page:
        body = f'<!doctype html><html lang="en"><meta charset="utf-8"><p>{html.escape(refused.sentence)}</p></html>'
        return body.encode(), "text/html; charset=utf-8"
    return json.dumps({"error": refused.sentence}).encode(), "application/json"


async def _respond(send: Any, status: int, body: bytes, kind: str, own: dict[str, str], add: dict[str, str]) -> None:
    headers = {"content-type": kind, "content-length": str(len(body)), **own, **add}
    if status in (400, 413):
        headers["connection"] = "close"  # the rest of the body is not read
    if status in (429, 503):
        headers["retry-after"] = "2"
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})
