"""Label files: a header and one record a label, as JSON lines, gzipped or not, or as Parquet. Nothing is pickled.

Segments are base64 of their float32 bytes and not lists of numbers: every bit comes back, files are smaller, and three
lines of any language read them (docs/labels.md). A record carries the checksum of its question, and an id that covers
the answer; a file that was cut off or changed is refused, and nothing of it is taken.
"""

from __future__ import annotations

import base64
import gzip
import json
import math
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from ubp2.errors import UserError
from ubp2.labelling.header import Header
from ubp2.preference.imported import Label
from ubp2.preference.records import encode
from ubp2.types import Query

__all__ = ["ARRAYS", "FIELDS", "check_name", "read", "read_header", "write"]

ENDINGS = (".jsonl", ".jsonl.gz", ".parquet")
LONGEST_LINE = 2**28  # bytes; a segment of 10000 decisions with 1000 numbers each is a fifth of it
LONGEST_TEXT = 1000
ARRAYS = Query._fields[:4]
# Names and types of a record, in the order in which they are written; a type and None: may be null.
FIELDS: Mapping[str, tuple[type, ...]] = {
    "id": (str,),
    "run": (str,),
    "decision": (int,),
    "session": (int,),
    "position": (int,),
    "strategy": (str,),
    "score": (float, type(None)),
    "left_episode": (int,),
    "left_start": (int,),
    "right_episode": (int,),
    "right_start": (int,),
    "label": (float,),
    "weight": (float,),
    "annotator": (str,),
    "seconds": (float, type(None)),
    "answered_at": (float,),
    "swapped": (bool,),
    "reason": (str, type(None)),
    "checksum": (str,),
    **dict.fromkeys(ARRAYS, (bytes,)),
}


def check_name(path: Path) -> None:
    """Refuse a name from which the format cannot be told."""
    if not path.name.endswith(ENDINGS):
        raise UserError(f"a label file ends with {', '.join(ENDINGS)}, got {path.name}; name it so")


def write(path: Path, header: Header, labels: Iterable[Label], *, overwrite: bool = False) -> None:
    """Write a file in one step: a reader sees all of it or nothing."""
    check_name(path)
    if path.exists() and not overwrite:
        raise UserError(f"{path} exists; name another file, or replace it with --overwrite")
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            _write_to(stream, path.name, header, map(_record, labels))
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {(error.strerror or str(error)).lower()}; free some space, or name another file"
        ) from error
    finally:
        with suppress(OSError):
            partial.unlink(missing_ok=True)


def _write_to(stream: IO[bytes], name: str, header: Header, records: Iterable[dict[str, Any]]) -> None:
    if name.endswith(".parquet"):
        from ubp2.labelling import parquet

        parquet.write(stream, header, records)
    else:
        _write_lines(stream, header, records, zipped=name.endswith(".gz"))


def _write_lines(stream: IO[bytes], header: Header, records: Iterable[dict[str, Any]], *, zipped: bool) -> None:
    # mtime 0: the same labels are the same bytes
    out = gzip.GzipFile(fileobj=stream, mode="wb", mtime=0, filename="") if zipped else stream
    out.write(json.dumps(header.as_dict(), allow_nan=False).encode() + b"\n")
    for record in records:
        text = {name: base64.b64encode(record[name]).decode() for name in ARRAYS}
        out.write(json.dumps(record | text, allow_nan=False).encode() + b"\n")
    if out is not stream:
        out.close()


def read_header(path: Path) -> Header:
    """Read the beginning of a file."""
    with _records(path) as (header, _):
        return header


def read(path: Path) -> tuple[Header, list[Label]]:
    """Read a file, all of it or nothing: every record is checked before any is handed out."""
    with _records(path) as (header, records):
        labels = [_label(record, header, f"{path}, label {n}") for n, record in enumerate(records, 1)]
    if len(labels) != header.counts.get("records"):
        raise UserError(
            f"{path} has {len(labels)} labels and its header says {header.counts.get('records')}: it was cut off or "
            f"changed; copy it again, or export it again"
        )
    return header, labels


@contextmanager
def _records(path: Path) -> Iterator[tuple[Header, Iterator[dict[str, Any]]]]:
    """Open a file: its header, and its records as they come."""
    check_name(path)
    try:
        if path.is_dir():
            raise UserError(f"{path} is a folder; name a label file, as ubp2 labels export writes it")
        if path.name.endswith(".parquet"):
            from ubp2.labelling import parquet

            with parquet.opened(path) as (header, records):
                yield Header.from_dict(header, path), records
            return
        with gzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as stream:
            yield Header.from_dict(_parsed(stream, path, 1), path), _lines(stream, path)
    except FileNotFoundError:
        raise UserError(f"there is no label file {path}; make one with: ubp2 labels export RUN {path.name}") from None
    except PermissionError:
        raise UserError(f"cannot read {path}: permission denied; make it readable, or name another file") from None
    except (OSError, EOFError, zlib.error) as error:  # a damaged gzip is any of the three
        raise UserError(f"cannot read {path}: {error}; it was cut off or damaged: copy it again") from None


def _lines(stream: Any, path: Path) -> Iterator[dict[str, Any]]:
    number = 2
    while (record := _parsed(stream, path, number)) is not None:
        for name in ARRAYS:
            try:
                record[name] = base64.b64decode(record[name], validate=True)
            except (KeyError, TypeError, ValueError):
                raise UserError(f"{path}, line {number}: {name} is missing or no base64; copy the file again") from None
        yield record
        number += 1


def _parsed(stream: Any, path: Path, number: int) -> Any:
    """The object in the next line; None at the end."""
    line = stream.readline(LONGEST_LINE)
    if not line:
        return None
    try:
        found = json.loads(line)
        if isinstance(found, dict):
            return found
        problem = f"an object was expected, got {line[:40]!r}"
    except (ValueError, RecursionError) as error:
        problem = str(error)
    if number == 1:  # any file at all may be named here
        raise UserError(f"{path} is not a label file; make one with: ubp2 labels export RUN {path.name}")
    raise UserError(f"{path}, line {number} is damaged ({problem}); copy the file again, or export it again")


def _record(label: Label) -> dict[str, Any]:
    """A label as the values of `FIELDS`; arrays are bytes."""
    fingerprint, _, *refs, _, _, _, left_obs, left_action, right_obs, right_action = encode(label.query)
    score = float(label.query.score)
    values = (label.id, label.run, label.decision, label.session, label.position, label.strategy)
    values += (score if math.isfinite(score) else None, *refs, label.label, label.weight, label.annotator)
    values += (label.seconds, label.answered_at, label.swapped, label.reason, fingerprint.hex())
    return dict(zip(FIELDS, (*values, left_obs, left_action, right_obs, right_action), strict=True))


def _label(record: Mapping[str, Any], header: Header, where: str) -> Label:
    """Rebuild a label, and refuse a record that no store could have written."""
    own = {name: _value(record, name, kinds, where) for name, kinds in FIELDS.items()}
    sizes = {"obs": header.obs_dim, "action": header.action_dim}
    arrays = []
    for name in ARRAYS:
        shape = (header.segment_length, sizes[name.split("_")[1]])
        if len(own[name]) != 4 * shape[0] * shape[1]:
            raise UserError(
                f"{where}: {name} has {len(own[name])} bytes, and {list(shape)} as in the header are "
                f"{4 * shape[0] * shape[1]}; the file was changed: export it again"
            )
        array = np.frombuffer(own[name], "<f4").reshape(shape).astype(np.float32)
        if not np.isfinite(array).all():
            raise UserError(f"{where}: {name} has values that are no finite numbers; leave this label out")
        arrays.append(array)
    if own["label"] not in (0.0, 0.5, 1.0) or own["weight"] < 0:
        raise UserError(f"{where}: label {own['label']} is not 0, 0.5 or 1, or weight {own['weight']} is below 0")
    refs = [own[name] for name in Query._fields[4:8]]
    query = Query(*arrays, *refs, score=math.nan if own["score"] is None else own["score"])
    said = [own[name] for name in ("label", "weight", "annotator", "seconds", "answered_at", "swapped", "reason")]
    asked = [own[name] for name in ("strategy", "run", "decision", "session", "position")]
    label = Label(query, encode(query)[0], *said, *asked)
    if (label.fingerprint.hex(), label.id) != (own["checksum"], own["id"]):
        raise UserError(f"{where} does not match its checksum: it was changed; copy the file again, or export it again")
    return label


def _value(record: Mapping[str, Any], name: str, kinds: tuple[type, ...], where: str) -> Any:
    """One value of a record, of the right type and not too large for a database."""
    if name not in record:
        raise UserError(f"{where} lacks {name}; the file was changed: export it again")
    value = record[name]
    if float in kinds and type(value) is int:
        value = float(value) if abs(value) < 2**53 else value
    good = type(value) in kinds
    if good and isinstance(value, str):
        good = _is_text(value)
    elif good and isinstance(value, (int, float)):
        good = abs(value) < 2**63 and math.isfinite(value)
    if not good:
        kind = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
        raise UserError(f"{where}: {name} must be {kind}, got {str(value)[:60]!r}")
    return value


def _is_text(value: str) -> bool:
    """Whether it is short enough, and a database can hold it: JSON can name halves of characters."""
    try:
        value.encode()
        return len(value) <= LONGEST_TEXT
    except UnicodeEncodeError:
        return False
