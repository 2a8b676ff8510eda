import numpy as np
import pyarrow as pa
import pytest

from vflbench.messages.parquet_columns import integers, numbers_of

TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64", "bool"]


@pytest.mark.parametrize("name", TYPES)
def test_numbers_are_those_of_pyarrow(name):
    """Whole, in slices that begin within a byte of truth values, in chunks, and where there are none."""
    rng = np.random.default_rng(0)
    values = (rng.random(100) < 0.5) if name == "bool" else rng.integers(0, 100, 100).astype(name)
    whole = pa.array(values)
    for start, count in ((0, 100), (3, 20), (8, 16), (13, 1), (50, 0)):
        part = whole.slice(start, count)
        assert numbers_of(part).tolist() == values[start : start + count].tolist()
        assert numbers_of(part).dtype == values.dtype
    chunks = pa.chunked_array([whole.slice(5, 7), whole.slice(0, 0), whole.slice(90)])
    assert numbers_of(chunks).tolist() == [*values[5:12].tolist(), *values[90:].tolist()]
    assert numbers_of(pa.chunked_array([], whole.type)).tolist() == []


@pytest.mark.parametrize("column", [pa.array([1, None]), pa.array([True, None]), pa.array(["1"]), pa.array([[1]])])
def test_nulls_and_other_types_are_refused(column):
    with pytest.raises(ValueError, match="a column of numbers has"):
        numbers_of(column)


def test_whole_numbers_beyond_int64_are_refused():
    assert integers(pa.array([7], pa.uint64()), "id").tolist() == [7]
    with pytest.raises(pa.ArrowInvalid):
        integers(pa.array([2**63], pa.uint64()), "id")
