"""Label files as Parquet (needs pyarrow): the same fields, segments as binary columns, the header as metadata."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from ubp2.errors import UserError
from ubp2.labelling.header import FORMAT, Header

__all__ = ["opened", "write"]

ROWS = 256  # in memory at a time


def write(stream: IO[bytes], header: Header, records: Iterable[dict[str, Any]]) -> None:
    """Write the records of `files.FIELDS`."""
    pyarrow, parquet = _pyarrow()
    schema = _schema(pyarrow).with_metadata({FORMAT: json.dumps(header.as_dict(), allow_nan=False)})
    records = iter(records)
    with parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        while rows := list(itertools.islice(records, ROWS)):
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))


@contextmanager
def opened(path: Path) -> Iterator[tuple[Any, Iterator[dict[str, Any]]]]:
    """The header as plain data, and the records as they come."""
    pyarrow, parquet = _pyarrow()
    try:
        with parquet.ParquetFile(path) as file:
            metadata = file.schema_arrow.metadata or {}
            header = json.loads(metadata.get(FORMAT.encode(), b"null"))
            yield header, (row for batch in file.iter_batches(ROWS) for row in batch.to_pylist())
    except (pyarrow.ArrowException, ValueError) as error:
        first = str(error).splitlines()[0] if str(error) else "unreadable"
        raise UserError(f"cannot read {path}: {first}; it was cut off or damaged: copy it again") from None


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UserError(
            "Parquet needs pyarrow: pip install 'ubp2[parquet]', or use a .jsonl.gz file, which holds the same"
        ) from None
    return pyarrow, pyarrow.parquet


def _schema(pyarrow: Any) -> Any:
    from ubp2.labelling.files import FIELDS

    kinds = {
        str: pyarrow.string(),
        int: pyarrow.int64(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        bytes: pyarrow.binary(),
    }
    return pyarrow.schema(
        [pyarrow.field(name, kinds[own[0]], nullable=type(None) in own) for name, own in FIELDS.items()]
    )
