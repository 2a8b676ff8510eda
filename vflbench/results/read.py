"""Reads the files of one run's folder. Each function raises FileNotFoundError where there is no such file, and Unreadable
for one that can't be read.
"""

import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from vflbench.results.files import CONFIG, ERROR, MANIFEST, METRICS, SUMMARY
from vflbench.results.schema import COLUMNS, FORMAT, Manifest, MetricRow, Record, Summary
from vflbench.results.untrusted import Unreadable, read_bytes, read_head, shown

if TYPE_CHECKING:
    import pyarrow

_MOST_ERROR = 64_000  # bytes of error.txt
_MOST_OPTIONS = 20_000
"""Values in config.yaml, those that an alias repeats counted each time."""
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where it was built
_R = TypeVar("_R", bound=Record)


class _Version(BaseModel):
    format: int | str | None = None


def read_manifest(folder: Path) -> Manifest:
    """manifest.json, of this version of vflbench's records alone."""
    path = folder / MANIFEST
    content = read_bytes(path)
    if _parsed(path, content, _Version).format != FORMAT:
        raise Unreadable(path, "another version of vflbench made this run")
    return _parsed(path, content, Manifest)


def read_summary(folder: Path) -> Summary:
    path = folder / SUMMARY
    return _parsed(path, read_bytes(path), Summary)


def format_of(folder: Path) -> str:
    """The version of its manifest.json, of a run or of recorded messages; empty if it has none."""
    path = folder / MANIFEST
    return str(_parsed(path, read_bytes(path), _Version).format or "")


def read_config(folder: Path) -> dict[str, Any]:
    """config.yaml: plain values."""
    path = folder / CONFIG
    content = read_bytes(path)
    try:
        config = yaml.load(content, _LOADER)  # nosec B506  # one of PyYAML's two safe loaders
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        raise Unreadable(path, error) from error
    values, count = [config], 0
    while values:
        value, count = values.pop(), count + 1
        values += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        if count > _MOST_OPTIONS:
            raise Unreadable(path, f"it has more than {_MOST_OPTIONS:,} values")
    if not isinstance(config, dict):
        raise Unreadable(path, "it holds no options")
    return config


def read_table(folder: Path) -> "pyarrow.Table":
    """metrics.csv in the order in which it was written, with the types of `MetricRow`; null in place of an empty cell."""
    from pyarrow import ArrowException, array, bool_, csv, float64, int64, string

    path = folder / METRICS
    content = read_bytes(path)
    types = dict.fromkeys(COLUMNS, string()) | dict.fromkeys(("value", "ci_low", "ci_high"), float64())
    convert = csv.ConvertOptions(
        column_types=types | {"epoch": int64(), "visible": bool_()},
        include_columns=COLUMNS,
        null_values=[""],
        strings_can_be_null=True,
        true_values=["true"],
        false_values=["false"],
    )
    parse = csv.ParseOptions(newlines_in_values=True)
    try:
        table = csv.read_csv(io.BytesIO(content), csv.ReadOptions(use_threads=False), parse, convert)
    except (ValueError, KeyError, ArrowException) as error:
        raise Unreadable(path, error) from error
    if table["epoch"].null_count or table["split"].null_count or table["metric"].null_count:
        raise Unreadable(path, "a row of it has no epoch, split or metric")
    for number, field in enumerate(table.schema):
        if field.type == string() and not all(map(str.isprintable, table[number].drop_null().unique().to_pylist())):
            texts = [value if value is None else shown(value) for value in table[number].to_pylist()]
            table = table.set_column(number, field, array(texts, string()))
    return table


def read_metrics(folder: Path) -> list[MetricRow]:
    """All rows of metrics.csv, in the order in which they were written."""
    table = read_table(folder)
    empty = dict.fromkeys(("value", "ci_low", "ci_high"), math.nan) | {"visible": None}
    columns = [[empty.get(name, "") if value is None else value for value in table[name].to_pylist()] for name in COLUMNS]
    return [MetricRow(*values) for values in zip(*columns, strict=True)]


def read_error(folder: Path) -> str | None:
    """The first paragraph of error.txt, which is for the user; a traceback follows it. None if there is no such file."""
    try:
        text = read_head(folder / ERROR, _MOST_ERROR).strip()
    except FileNotFoundError:
        return None
    return shown(text.split("\n\n")[0].strip(), 600) or "no message"


def _parsed(path: Path, content: bytes, kind: type[_R] | type[_Version]) -> Any:
    try:
        return kind.model_validate_json(content, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Unreadable(path, f"{place or 'it'} is {shown(repr(first['input']), 60)}: {first['msg'].lower()}") from None
