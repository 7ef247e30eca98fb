"""What a pair is called on the wire, and everything about it that must be random yet the same after a restart.

A ticket is signed, not remembered: a server that was killed and started again still takes the answer that a page kept.
Which side is which, and which pairs are asked again, are drawn from the same secret, so that a reload shows a pair as
it was shown before and nobody can tell in advance.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ubp2.storage.database import disk_errors

__all__ = ["Ticket", "Tickets", "page_name", "run_secret"]

_KINDS = {False: "q", True: "a"}


class Ticket(NamedTuple):
    """A question as it is handed to somebody: the first time, or again for self-consistency."""

    question: int
    again: bool = False


class Tickets:
    """Signs and reads tickets with the secret of a run."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._draws: dict[tuple[str, str, int], float] = {}

    def write(self, annotator: str, ticket: Ticket) -> str:
        """The ticket as text, good for this annotator alone."""
        name = f"{_KINDS[ticket.again]}{ticket.question}"
        return f"{name}.{self._sign(annotator, name)}"

    def read(self, annotator: str, text: str) -> Ticket | None:
        """The ticket of a text; None: not ours, or somebody else's."""
        name, _, signature = text.partition(".")
        if not (name[1:].isascii() and name[1:].isdigit() and len(name) < 20 and name[0] in _KINDS.values()):
            return None
        if not hmac.compare_digest(signature.encode(), self._sign(annotator, name).encode()):
            return None
        return Ticket(int(name[1:]), name[0] == _KINDS[True])

    def swapped(self, annotator: str, ticket: Ticket) -> bool:
        """Whether the question's left segment is shown on the right; asked again, it is the other way round."""
        first = self.draw("side", annotator, ticket.question) < 0.5
        return first != ticket.again

    def draw(self, purpose: str, annotator: str, question: int) -> float:
        """A number in [0, 1) that depends on nothing else."""
        drawn = self._draws.get((purpose, annotator, question))
        if drawn is None:
            digest = self._digest(f"{purpose}\0{question}\0{annotator}")
            drawn = self._draws[purpose, annotator, question] = int.from_bytes(digest[:6], "big") / 2**48
        return drawn

    def _sign(self, annotator: str, name: str) -> str:
        return base64.urlsafe_b64encode(self._digest(f"ticket\0{name}\0{annotator}")[:18]).decode()

    def _digest(self, text: str) -> bytes:
        return hmac.new(self._secret, text.encode(), hashlib.sha256).digest()


def run_secret(path: Path, run: Path | None = None) -> bytes:
    """The secret in this file, which is made if it is not there; two processes that make it get the same one.

    run: the folder to resume after an error of the disk.
    """
    with disk_errors(path, run):
        for _ in range(2):
            with suppress(FileNotFoundError):
                text = path.read_text(encoding="ascii").strip()
                if len(text) >= 64:
                    return bytes.fromhex(text)
                path.unlink()  # half of one, from before files were linked whole, or by hand
            partial = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                with os.fdopen(handle, "w", encoding="ascii") as stream:
                    stream.write(secrets.token_hex(32))
                    stream.flush()
                    os.fsync(stream.fileno())
                _put(partial, path)
            finally:
                partial.unlink(missing_ok=True)
        return bytes.fromhex(path.read_text(encoding="ascii").strip())


def _put(partial: Path, path: Path) -> None:
    """Give a file its name, unless there is one of that name; a process that reads sees it whole."""
    try:
        return os.link(partial, path)
    except FileExistsError:
        return None
    except OSError:  # a drive on which a file has one name only (exFAT)
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)  # no other process between the look and the name
        if not path.exists():
            partial.rename(path)
    finally:
        os.close(folder)


def page_name(secret: bytes) -> str:
    """What a page is called where answers of several are kept apart."""
    return hashlib.sha256(b"run" + secret).hexdigest()[:12]
