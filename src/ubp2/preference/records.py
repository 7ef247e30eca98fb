"""What the label store hands out, and how a question becomes columns of its table and back."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ubp2.types import Query

__all__ = ["Answered", "Counts", "Given", "Pending", "Placed", "decode", "encode"]


class Pending(NamedTuple):
    """A question that waits for an answer."""

    id: int
    decision: int
    session: int
    position: int
    strategy: str
    query: Query


class Placed(NamedTuple):
    """Where a question stands and where its two segments are, without what is in them."""

    id: int
    decision: int
    session: int
    position: int
    left: tuple[int, int]  # episode, first decision
    right: tuple[int, int]
    length: int


class Answered(NamedTuple):
    """One current answer. `id` grows with each answer given, so it is the cursor of a reader."""

    id: int
    query_id: int
    decision: int
    query: Query
    label: float
    weight: float
    annotator: str


class Given(NamedTuple):
    """What one annotator said to one question, without the question."""

    id: int
    query_id: int
    session: int
    annotator: str
    label: float
    weight: float
    seconds: float | None
    swapped: bool  # whether the question's left segment was shown on the right
    answered_at: float
    reason: str | None = None


class Counts(NamedTuple):
    """How many current answers have weight, and how many questions are current."""

    labels: int
    asked: int


def encode(query: Query) -> tuple:
    """Return fingerprint, score, references, sizes and blobs, in the order of the columns."""
    arrays = [np.asarray(array) for array in query[:4]]
    (length, obs_dim), (_, action_dim) = shapes = [array.shape for array in arrays[:2]]
    if [array.shape for array in arrays] != shapes * 2 or shapes[1][0] != length:
        raise ValueError(f"a query is two segments of equal shape [L, D] and [L, A], got {[a.shape for a in arrays]}")
    if any(array.dtype != np.float32 for array in arrays):
        raise ValueError(f"the arrays of a query are float32, got {[str(array.dtype) for array in arrays]}")
    blobs = [array.astype("<f4").tobytes() for array in arrays]
    refs = [int(ref) for ref in query[4:8]]
    return _fingerprint(shapes * 2, blobs, refs), float(query.score), *refs, length, obs_dim, action_dim, *blobs


def _fingerprint(shapes: Sequence[tuple[int, ...]], blobs: Sequence[bytes], refs: Sequence[int]) -> bytes:
    """Identify what is asked; the score and the strategy are remarks about it."""
    digest = hashlib.sha256(repr((list(shapes), list(refs))).encode())
    for blob in blobs:
        digest.update(blob)
    return digest.digest()


def decode(columns: Sequence[Any]) -> Query | None:
    """Rebuild a query from `schema.QUERY_COLUMNS`; None: its bytes have changed."""
    fingerprint, length, obs_dim, action_dim, *blobs = columns[:8]
    refs, score = columns[8:12], columns[12]
    shapes = [(length, obs_dim), (length, action_dim)] * 2
    if _fingerprint(shapes, blobs, refs) != fingerprint:
        return None
    # astype copies: a view of the blob would be read-only and of a fixed byte order
    left_obs, left_action, right_obs, right_action = (
        np.frombuffer(blob, "<f4").reshape(shape).astype(np.float32) for blob, shape in zip(blobs, shapes, strict=True)
    )
    return Query(left_obs, left_action, right_obs, right_action, *refs, score=math.nan if score is None else score)
