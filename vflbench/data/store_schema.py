"""What the schema of a prepared table holds: checked before any of it is used, as files may be damaged or another's."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Required

from pydantic import Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

Digest = Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
"""The names of prepared tables, and of what is known of texts."""
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_Size = Annotated[int, Field(ge=0, le=2**31)]
_Names = list[str]


class _Array(TypedDict):
    dtype: Literal["int32", "float64", "uint8"]
    width: Annotated[int, Field(ge=0, le=2**24)] | None


class _BadRows(TypedDict):
    count: Annotated[int, Field(ge=0)]
    first: list[str]


class _ReadAs(TypedDict, total=False):
    delimiter: str
    columns: dict[str, str]
    first: dict[str, str]
    missing: dict[str, Annotated[int, Field(ge=0)]]
    ignored: dict[str, str]
    doubts: list[str]


class _Facts(TypedDict, total=False):
    file_sha256: Required[list[Sha256 | None]]
    classes_are: list[str]
    class_rows: dict[str, Annotated[int, Field(ge=0)]]
    bad_rows: _BadRows
    read_as: _ReadAs


class _Schema(TypedDict):
    version: int
    rows: Annotated[int, Field(ge=1, le=2**40)]
    names: _Names
    numeric_names: _Names
    categorical_names: _Names
    sizes: list[_Size]
    classes: Annotated[int, Field(ge=2, le=2**31)]
    low: list[float]
    high: list[float]
    options: str
    raw_bytes: Annotated[int, Field(ge=0)]
    facts: _Facts
    fingerprint: Sha256
    key: Digest
    arrays: dict[Literal["numeric", "categorical", "labels"], _Array]
    checksums: dict[Literal["counts", "checksums"], Annotated[int, Field(ge=0, lt=2**32)]]


_SCHEMA = TypeAdapter(_Schema)


def check_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The same as a dict. Raises ValueError where something is missing, of another type, or doesn't fit the rest."""
    try:
        _SCHEMA.validate_python(schema, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{'.'.join(map(str, first['loc']))[:80]}: {first['msg']}") from error
    numeric, categorical = len(schema["numeric_names"]), len(schema["categorical_names"])
    widths = {name: array["width"] for name, array in schema["arrays"].items()}
    if (
        widths != {"numeric": numeric, "categorical": categorical, "labels": None}
        or not len(schema["low"]) == len(schema["high"]) == numeric
        or len(schema["sizes"]) != categorical
        or len(schema["names"]) != numeric + categorical
        or set(schema["checksums"]) != {"counts", "checksums"}
    ):
        raise ValueError("its columns don't fit each other")
    return dict(schema)
