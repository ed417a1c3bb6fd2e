"""Shape files: `utt_id 312,80` per line (ESPnet's text), and the same as Arrow for fast, memory-mapped
loading.

The Arrow file `<key>_shape.arrow` has the columns utt_id (large_string), index (int64, position in the split)
and dim0, dim1, ... (int64), in the order of the text.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from statsprep.errors import DataError
from statsprep.storage.atomic import open_private

# Small shards are gathered to record batches of this many rows, so that a merged file has few batches to look
# through.
_ROWS_PER_BATCH = 65_536


def format_shape(utt_id: str, shape: Sequence[int]) -> str:
    """One line of a shape file, with its newline."""
    return f"{utt_id} {','.join(map(str, shape))}\n"


def parse_shape(line: str, where: str) -> tuple[str, tuple[int, ...]]:
    """Read one line; `where` is `path:line` for the message.

    Raises:
        DataError: no id and shape in the line, or a length that is no integer.
    """
    utt_id, _, text = line.rstrip("\r\n").partition(" ")
    try:
        shape = tuple(int(length) for length in text.split(","))
    except ValueError:
        raise DataError(
            f"{where}: got {line.rstrip()!r}; expected 'utt_id 312' or 'utt_id 312,80'; measure the split "
            "again"
        ) from None
    return utt_id, shape


def read_shapes(path: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """(utt_id, shape) per line of a shape file, streamed."""
    with open(path, encoding="utf-8", newline="\n") as lines:
        for number, line in enumerate(lines, 1):
            yield parse_shape(line, f"{path}:{number}")


def write_shapes(text_path: Path, rows: Sequence[tuple[str, int, Sequence[int]]]) -> None:
    """Write the rows (utt_id, index, shape) of one shard as text and as Arrow beside it."""
    with open_private(text_path, binary=True) as stream:
        stream.write("".join(format_shape(utt_id, shape) for utt_id, _, shape in rows).encode())
    _write_arrow(arrow_path(text_path), [_to_table(rows)])


def arrow_path(text_path: Path) -> Path:
    """The Arrow file that belongs to a shape text file."""
    return text_path.with_name(f"{text_path.name}.arrow")


def merge_arrow(parts: Iterable[Path], target: Path) -> int:
    """Stream the shards' Arrow files into one with flat memory; returns the number of rows.

    Raises:
        DataError: shapes of different numbers of dimensions.
    """
    import pyarrow as pa

    def tables() -> Iterator[Any]:
        for part in parts:
            with _arrow_errors_named(part), pa.OSFile(str(part)) as source:
                table = _checked(source)
            yield table

    return _write_arrow(target, tables())


def _to_table(rows: Sequence[tuple[str, int, Sequence[int]]]) -> Any:
    import pyarrow as pa

    num_dims = len(rows[0][2])
    for utt_id, _, shape in rows:
        if len(shape) != num_dims:
            raise DataError(
                f"utterance {utt_id!r}: features of shape {tuple(shape)} after ones of {num_dims} "
                "dimensions; expected one number of dimensions per key; mend collect_feats"
            )
    columns = {
        "utt_id": pa.array([row[0] for row in rows], pa.large_string()),
        "index": pa.array([row[1] for row in rows], pa.int64()),
    }
    for dim in range(num_dims):
        columns[f"dim{dim}"] = pa.array([row[2][dim] for row in rows], pa.int64())
    return pa.table(columns)


def _write_arrow(target: Path, tables: Iterable[Any]) -> int:
    import pyarrow as pa

    num_rows = 0
    schema: Any = None
    waiting: list[Any] = []
    writer: Any = None
    with open_private(target, binary=True) as stream:
        for table in tables:
            if writer is None:
                schema = table.schema
                writer = pa.ipc.new_file(stream, schema)
            elif table.schema != schema:
                raise DataError(
                    f"{target}: shards disagree on the number of dimensions "
                    f"({', '.join(table.schema.names[2:])} "
                    f"after {', '.join(schema.names[2:])}); mend collect_feats and measure again"
                )
            num_rows += table.num_rows
            waiting.append(table)
            if sum(each.num_rows for each in waiting) >= _ROWS_PER_BATCH:
                writer.write_table(pa.concat_tables(waiting).combine_chunks())
                waiting.clear()
        if writer is not None:
            if waiting:
                writer.write_table(pa.concat_tables(waiting).combine_chunks())
            writer.close()
    return num_rows


def load_shapes(path: Path) -> Any:
    """The memory-mapped pyarrow Table of a `<key>_shape.arrow`: utt_id, index, dim0, dim1, ...

    Raises:
        DataError: the file is missing, damaged, or something else.
    """
    import pyarrow as pa

    with _arrow_errors_named(path):
        return _checked(pa.memory_map(str(path)))


def _checked(source: Any) -> Any:
    """The table of an open file. Arrow believes offsets that point anywhere, unless it is asked to look."""
    import pyarrow as pa

    table = pa.ipc.open_file(source).read_all()
    table.validate(full=True)
    names, types = table.column_names, table.schema.types
    dims = [f"dim{dim}" for dim in range(len(names) - 2)]
    if names != ["utt_id", "index", *dims] or types != [pa.large_string(), *[pa.int64()] * (len(names) - 1)]:
        raise ValueError(f"columns {', '.join(names)}")
    return table


@contextlib.contextmanager
def _arrow_errors_named(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError, NotImplementedError) as error:  # Arrow's own are kinds of these
        reason = " ".join(str(error).split())[:120]
        raise DataError(f"{path}: is no table of shapes ({reason}); measure the split again") from error
