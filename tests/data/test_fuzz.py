"""Damaged tables: every error is a UserError."""

from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vflbench.data.csv import Csv
from vflbench.errors import UserError


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=300))
def test_a_table_of_any_bytes_gives_rows_or_a_user_error(tmp_path, content):
    (tmp_path / "x").write_bytes(b"a,y\n1,0\n" + content)
    for bad_rows in ("error", "skip"):
        with suppress(UserError):
            prepared = Csv(path=str(tmp_path / "x"), label="y", bad_rows=bad_rows, max_bad_fraction=1.0).prepare()
            assert len(prepared.table) >= 1
