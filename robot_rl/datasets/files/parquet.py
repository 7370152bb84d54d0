"""Parquet tables as columns of numpy; wraps pyarrow."""

import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from robot_rl.core.errors import DatasetError
from robot_rl.datasets.files.manifest import read_errors

Table = Mapping[str, NDArray[Any] | Sequence[Any]]
"""Columns by name: (n,) or (n, width) arrays, or lists of strings or of lists."""
_NOTE_KEY = b"robot_rl"
_PART_BYTES = 4 << 20
"""Bytes of the rows that `ParquetTables.parts` gives at once."""


def encode(
    tables: Iterable[Table], *, note: Mapping[str, Any] | None = None, index: str = ""
) -> bytes:
    """A file with one row group per table.

    Args:
        tables: With the same columns.
        index: Column that pandas takes for the index; empty for none.
    """
    out = io.BytesIO()
    writer: pq.ParquetWriter | None = None
    for columns in tables:
        table = pa.table({name: _to_arrow(column) for name, column in columns.items()})
        about = {} if note is None else {_NOTE_KEY: json.dumps(note).encode()}
        if index:
            about[b"pandas"] = json.dumps(_pandas(columns, index)).encode()
        table = table.replace_schema_metadata(about or None)
        if writer is None:
            # Whole numbers repeat: a dictionary makes them small. The signature says bool, the
            # documentation: or a list of columns.
            some: Any = [one.name for one in table.schema if pa.types.is_integer(one.type)]
            writer = pq.ParquetWriter(out, table.schema, use_dictionary=some)
        writer.write_table(table, row_group_size=max(1, len(table)))
    if writer is not None:
        writer.close()
    return out.getvalue()


class ParquetTables:
    """A Parquet file: row groups are read one at a time; damage is a DatasetError."""

    def __init__(self, path: Path, *, buffer: int = 0) -> None:
        """Read the footer.

        Args:
            buffer: Bytes of a column that are read at once, for row groups that may be larger than
                memory; 0 reads all that a row group has of it.

        Raises:
            DatasetError: The file is missing or damaged.
        """
        self.path = path
        with _errors(path):
            # Read ahead, a row group would be in memory as a whole.
            self._file = pq.ParquetFile(
                path, memory_map=False, buffer_size=buffer, pre_buffer=not buffer
            )
            self._schema = self._file.schema_arrow
            self.columns: list[str] = list(self._schema.names)
            """Their names."""
            self.rows: list[int] = [
                self._file.metadata.row_group(i).num_rows for i in range(self._file.num_row_groups)
            ]
            """Rows of every row group."""

    @property
    def note(self) -> Any:
        """Note that `encode` kept in the file; None if there is none."""
        try:
            return json.loads((self._schema.metadata or {})[_NOTE_KEY])
        except (KeyError, ValueError):
            return None

    def read(self, number: int, columns: Sequence[str] | None = None) -> dict[str, Any]:
        """Columns of a row group: arrays, or lists where they hold strings or uneven lists."""
        with _errors(self.path):
            wanted = None if columns is None else list(columns)
            table = self._file.read_row_group(number, columns=wanted, use_threads=False)
            return {name: _from_arrow(table[name], self.path, name) for name in table.column_names}

    def parts(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Columns of all rows, some at a time, however long the row groups are."""
        for group, rows in enumerate(self.rows):
            found = 0
            with _errors(self.path):
                each = self._file.metadata.row_group(group).total_byte_size / max(1, rows)
                batches = self._file.iter_batches(
                    batch_size=max(1, int(_PART_BYTES / max(1.0, each))), row_groups=[group],
                    columns=list(columns), use_threads=False,
                )  # fmt: skip
            while True:
                with _errors(self.path):
                    batch = next(batches, None)
                    if batch is None:
                        break
                    table = pa.Table.from_batches([batch])
                    names = table.column_names
                    part = {name: _from_arrow(table[name], self.path, name) for name in names}
                found += len(batch)
                yield part
            if found != rows:
                raise DatasetError(
                    f"the file {self.path} gives {found} rows of row group {group}; expected "
                    f"{rows}, as it says itself"
                )

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> "ParquetTables":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_all(path: Path) -> dict[str, Any]:
    """All rows of a small file, as of `ParquetTables.read`."""
    with _errors(path):
        table = pq.ParquetFile(path, memory_map=False).read(use_threads=False)
        return {name: _from_arrow(table[name], path, name) for name in table.column_names}


def _errors(path: Path) -> AbstractContextManager[None]:
    damage = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)
    return read_errors(path, "Parquet", *damage)


def _to_arrow(column: NDArray[Any] | Sequence[Any]) -> pa.Array:
    if not isinstance(column, np.ndarray):
        return pa.array(column)
    if column.ndim == 1 or column.shape[1] == 1:
        return pa.array(column.reshape(-1))  # LeRobot reads vectors of one number as numbers
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, column.shape[1])


def _from_arrow(column: pa.ChunkedArray, path: Path, name: str) -> Any:
    if column.null_count:
        row = next(i for i, value in enumerate(column) if not value.is_valid)
        raise DatasetError(f"{path}, row {row}: '{name}' holds nothing; expected a value")
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # of no chunk at all
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], column.type)
    kind = array.type
    if pa.types.is_fixed_size_list(kind) and _is_number(kind.value_type):
        flat = array.flatten()
        return _numbers(flat).reshape(len(array), kind.list_size)
    if pa.types.is_list(kind) and _is_number(kind.value_type):
        widths = np.unique(np.diff(array.offsets.to_numpy()))
        if len(widths) == 1:
            return _numbers(array.flatten()).reshape(len(array), int(widths[0]))
    return _numbers(array) if _is_number(kind) else array.to_pylist()


def _numbers(array: pa.Array) -> NDArray[Any]:
    return np.array(array.to_numpy(zero_copy_only=False))  # a copy: Arrow's memory is read-only


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


def _pandas(columns: Table, index: str) -> dict[str, Any]:
    """Metadata of pandas, see "Storing pandas DataFrame objects in Apache Parquet"."""
    kinds = {
        name: ("int64", "int64") if isinstance(column, np.ndarray) else ("unicode", "object")
        for name, column in columns.items()
    }
    told = [
        {"name": name, "field_name": name, "pandas_type": one, "numpy_type": two, "metadata": None}
        for name, (one, two) in kinds.items()
    ]
    unnamed = {"name": None, "field_name": None, "pandas_type": "unicode", "numpy_type": "object"}
    return {
        "index_columns": [index],
        "column_indexes": [{**unnamed, "metadata": {"encoding": "UTF-8"}}],
        "columns": told,
        "creator": {"library": "pyarrow", "version": pa.__version__},
    }
