"""What comes over the wire, checked field by field before anything is done with it."""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping
from typing import Any, NoReturn

from starlette.requests import Request

from ubp2.labelling.choices import CHOICES, Choice
from ubp2.labelling.security import Refused
from ubp2.preference.teachers import TEACHERS

__all__ = ["annotator", "body", "choice", "key", "pair", "parsed", "reason", "seconds"]

NAME_CHARACTERS = 40
REASON_CHARACTERS = 300
LONGEST = 24 * 3600.0  # seconds
_RESERVED = {*TEACHERS, "custom"}
_JOINERS = "\u200c\u200d"  # part of how names of several scripts are spelled
_MARKS = dict.fromkeys(map(ord, "\u061c\u200e\u200f"))  # of direction: they come along when a name is pasted
_KEY = re.compile(r"[A-Za-z0-9_.:-]{8,80}")


async def body(request: Request) -> dict[str, Any]:
    """The JSON object in a request. A form of another site cannot send this content type without our leave."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, f"a request is JSON: send Content-Type application/json, got {kind[:60] or 'none'}")
    return parsed(await request.body())


def parsed(text: bytes) -> dict[str, Any]:
    """The JSON object in a body."""
    try:
        content = json.loads(text.decode("utf-8"), parse_constant=_not_json)
    except (ValueError, RecursionError):
        raise Refused(400, "the request is not JSON") from None
    if not isinstance(content, dict):
        raise Refused(400, "a request is a JSON object with named fields")
    return content


def annotator(fields: Mapping[str, Any]) -> str:
    """The name of the annotator, spelled one way only."""
    text = unicodedata.normalize("NFC", _text(fields, "annotator").translate(_MARKS))
    name = " ".join(word for part in text.split() if (word := part.strip(_JOINERS)))
    if not 0 < len(name) <= NAME_CHARACTERS:
        raise Refused(400, f"a name has 1 to {NAME_CHARACTERS} letters, figures or signs, got {len(name)}")
    if hidden := next((c for c in name if not c.isprintable() and c not in _JOINERS), None):
        raise Refused(400, f"the name holds a character that nobody can see (U+{ord(hidden):04X}); type it anew")
    if name.lower() in _RESERVED:
        raise Refused(400, f"{name} is a scripted teacher, whose answers would be taken for yours; choose another name")
    return name


def pair(fields: Mapping[str, Any]) -> str:
    """The id of a pair, of which the desk knows whether it is one."""
    text = _text(fields, "pair")
    if len(text) > 100 or not text.isascii():
        raise Refused(400, "'pair' is the id of a pair as /api/next gave it")
    return text


def choice(fields: Mapping[str, Any]) -> Choice:
    """Which of the four answers."""
    for known in CHOICES:
        if fields.get("choice") == known:
            return known
    raise Refused(400, f"'choice' is one of {', '.join(CHOICES)}")


def key(fields: Mapping[str, Any]) -> str:
    """What makes a repeated request one request."""
    text = _text(fields, "key")
    if not _KEY.fullmatch(text):
        raise Refused(400, "'key' has 8 to 80 letters, figures, dots, colons, dashes or underlines, new for every act")
    return text


def seconds(fields: Mapping[str, Any]) -> float | None:
    """How long the annotator looked; None: not measured."""
    value = fields.get("seconds")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise Refused(400, "'seconds' is a number from 0 on, or null")
    return float(min(value, LONGEST))  # in this order: an integer may be too large for a float


def reason(fields: Mapping[str, Any]) -> str:
    """Why a clip could not be seen, in one line."""
    text = " ".join("".join(c if c.isprintable() else " " for c in _text(fields, "reason")).split())
    return text[:REASON_CHARACTERS] or "no reason given"


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or any(0xD800 <= ord(c) < 0xE000 for c in value):  # half a character: no UTF-8
        raise Refused(400, f"'{name}' is missing or no text")
    return value


def _not_json(text: str) -> NoReturn:
    raise ValueError(text)
