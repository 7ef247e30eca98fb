"""What a trainer sends to a page on another machine: a few values and arrays in one body, and nothing pickled."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

from ubp2.types import Episode, Query

__all__ = ["episode", "pack", "questions", "read_episode", "read_questions", "unpack"]

_ARRAYS, _REFERENCES = Query._fields[:4], Query._fields[4:8]


def pack(values: Mapping[str, Any], **arrays: np.ndarray) -> bytes:
    """The body of a request."""
    stream = io.BytesIO()
    np.savez_compressed(stream, values=np.frombuffer(json.dumps(values).encode(), np.uint8), **arrays)  # type: ignore
    return stream.getvalue()


def unpack(body: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Values and arrays; raises ValueError for anything that `pack` did not make."""
    try:
        with np.load(io.BytesIO(body), allow_pickle=False) as found:
            arrays = dict(found)
        values = json.loads(arrays.pop("values").tobytes())
    except (OSError, EOFError, KeyError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"not a parcel: {error}") from None
    if not isinstance(values, dict):
        raise ValueError("the values of a parcel have names")
    return values, arrays


def episode(of: Episode) -> bytes:
    """An episode as anybody may see it: without the true reward, which no page needs."""
    return pack({"index": of.index, "seed": of.seed, "terminated": of.terminated}, obs=of.obs, action=of.action)


def read_episode(body: bytes) -> Episode:
    """The episode, with zeros for rewards; raises ValueError, KeyError or TypeError for anything else."""
    values, arrays = unpack(body)
    return blank(
        Episode(
            int(values["index"]),
            int(values["seed"]),
            arrays["obs"],
            arrays["action"],
            np.zeros(0),
            np.zeros(0, np.bool_),
            bool(values["terminated"]),
        )
    )


def blank(of: Episode) -> Episode:
    """The episode as the other machine has it."""
    length = len(of.action)
    return of._replace(true_reward=np.zeros(length), success=np.zeros(length, np.bool_))


def questions(decision: int, session: int, strategy: str, queries: list[Query]) -> bytes:
    """A session of questions."""
    arrays = {name: np.stack([getattr(query, name) for query in queries]) for name in _ARRAYS}
    references = np.array([[getattr(query, name) for name in _REFERENCES] for query in queries], np.int64)
    scores = np.array([query.score for query in queries], np.float64)
    values = {"decision": decision, "session": session, "strategy": strategy}
    return pack(values, references=references, scores=scores, **arrays)


def read_questions(body: bytes) -> tuple[int, int, str, list[Query]]:
    """Decision, session, strategy, queries; raises ValueError, KeyError or TypeError for anything else."""
    values, arrays = unpack(body)
    sides = zip(*(arrays[name] for name in _ARRAYS), strict=True)
    rest = zip(sides, arrays["references"].tolist(), arrays["scores"].tolist(), strict=True)
    queries = [Query(*side, *references, score=score) for side, references, score in rest]
    return int(values["decision"]), int(values["session"]), str(values["strategy"]), queries
