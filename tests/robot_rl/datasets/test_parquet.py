"""Tables of others, whose row groups may be as long as their files."""

from pathlib import Path

import numpy as np
import pyarrow as pa

from robot_rl.datasets.files.parquet import ParquetTables, encode

ROWS = 40_000
TABLE = {
    "wide": np.random.default_rng(0).standard_normal((ROWS, 200), np.float32),  # 32 MB
    "row": np.arange(ROWS),
}


def test_a_row_group_is_read_in_parts_and_never_held(tmp_path: Path) -> None:
    path = tmp_path / "one.parquet"
    path.write_bytes(encode([TABLE]))
    before = most = pa.total_allocated_bytes()
    at = 0
    with ParquetTables(path, buffer=1 << 20) as tables:
        assert tables.rows == [ROWS]
        for part in tables.parts(["row", "wide"]):
            most = max(most, pa.total_allocated_bytes())
            assert (part["row"] == np.arange(at, at + len(part["row"]))).all()
            assert (part["wide"] == TABLE["wide"][at : at + len(part["row"])]).all()
            at += len(part["row"])
    assert at == ROWS
    assert most - before < 16 << 20, "parts of 4 MB, and what is read ahead of them"
