"""Mutate real Criteo lines and hold vflbench's reader against a plain reference of which lines are good.

    python scripts/fuzz_criteo.py --data DATA --lines 10000 --seed 0
    python scripts/fuzz_criteo.py --data DATA --compiled

DATA/criteo/train.txt.gz holds labelled rows. What can happen to a line, and which lines are good, is written down in
tests/criteo_mutations.py, apart from vflbench. Checked are:

    skip    one file of --lines mutated lines between as many real ones, plain and .gz, with bad_rows=skip and
            max_bad_fraction=1: the rows kept are the good ones (their labels in order, their numeric and categorical
            values as if the file held nothing else), bad_rows counts the others, and the first one told is the first one
    error   --files small files, each of some real lines and 1 to 3 mutated ones, with bad_rows=error: a bad line must raise
            UserError naming the file, the line and one of the columns that are wrong with its value. Anything else that
            is raised is a failure, and so is a file of good lines that is refused

A version of vflbench without the option bad_rows is told; only `error` is checked then, which is what it does anyway.
Prints what was checked, by rule, and the first failures; exit code 1 if there are any. Same data, same seed: same lines.
"""

import argparse
import gzip
import itertools
import os
import random
import re
import sys
import tempfile
from collections import Counter
from dataclasses import fields
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from criteo_mutations import Fault, faults, is_valid, lines_of, mutate
from raw_files import in_file_order, load

from vflbench.data import compiled
from vflbench.data.criteo import Criteo
from vflbench.errors import UserError

_CLEAN_LINES = 24  # in a small file, beside the mutated ones and twelve of known labels


def wrong_when_skipping(folder: Path, content: bytes, compress: bool) -> list[str]:
    """What is wrong with what bad_rows=skip makes of the file's content; nothing, it is hoped."""
    path = folder / ("skip.txt.gz" if compress else "skip.txt")
    path.write_bytes(gzip.compress(content, 1) if compress else content)
    numbered = lines_of(content)
    good = [line for _, line in numbered if is_valid(line)]
    bad = [(number, line) for number, line in numbered if not is_valid(line)]
    try:
        split = load(Criteo(path=str(path), bad_rows="skip", max_bad_fraction=1.0))
    except Exception as error:
        return [f"{path.name}: {type(error).__name__}: {error}"[:2000]]
    wrong = []
    numeric, categorical, labels = in_file_order(split)
    if labels.tolist() != [int(line[:1]) for line in good]:
        wrong.append(f"{path.name}: {len(labels)} rows were kept; {len(good)} lines are good")
        kept = iter(labels.tolist())
        off = next((n for n, line in numbered if is_valid(line) and next(kept, None) != int(line[:1])), None)
        wrong.append(f"{path.name}: labels differ from line {off} on, at the latest")
    told = split.facts.get("bad_rows", {"count": 0, "first": []})
    if told["count"] != len(bad):
        wrong.append(f"{path.name}: bad_rows counts {told['count']}; {len(bad)} lines are bad")
    if bad and not (told["first"] and _names(told["first"][0], "line", bad[0][0])):
        wrong.append(f"{path.name}: the first bad line is {bad[0][0]}; told is {told['first'][:1]}")
    clean = folder / "clean.txt"
    clean.write_bytes(b"\n".join(line.removesuffix(b"\r") for line in good) + b"\n")
    if not wrong:
        expected = in_file_order(load(Criteo(path=str(clean))))
        same = torch.equal(numeric, expected[0]), torch.equal(categorical, expected[1])
        wrong += [
            f"{path.name}: {n} values differ" for n, ok in zip(("numeric", "categorical"), same, strict=True) if not ok
        ]
    return wrong


def wrong_when_refusing(folder: Path, content: bytes) -> list[str]:
    """What is wrong with what bad_rows=error, the default, makes of the file's content."""
    path = folder / "error.txt"
    path.write_bytes(content)
    first = next(((number, found) for number, line in lines_of(content) if (found := faults(line))), None)
    try:
        load(Criteo(path=str(path)))
    except UserError as error:
        if first is None:
            return [f"a file of good lines is refused: {error}"[:600]]
        number, found = first
        return (
            [] if is_told(str(error), path, number, found) else [f"line {number} is {_short(found)}; told is: {error}"[:600]]
        )
    except Exception as error:
        return [f"{_short(first)}: {type(error).__name__}: {error}"[:600]]
    return [] if first is None else [f"line {first[0]} is {_short(first[1])}, and the file is taken"[:600]]


def is_told(message: str, path: Path, number: int, found: list[Fault]) -> bool:
    """Whether a message names the file, the line and, where single columns are wrong, one of them and its value."""
    if str(path) not in message or not _names(message, "line", number):
        return False
    columns = [fault for fault in found if fault.column is not None]
    return not columns or any(
        _names(message, "column", fault.column) and _start(fault.value) in message for fault in columns
    )


def _names(message: str, what: str, which: object) -> bool:
    """Whether it says "line 7", say, and not "line 71"."""
    return re.search(rf"\b{what} {which}\b", message) is not None


def _start(value: bytes) -> str:
    """The letters and digits that a value begins with, at most 20: which no spelling of the rest changes."""
    return bytes(itertools.takewhile(lambda byte: chr(byte).isalnum() and byte < 128, value))[:20].decode()


def _short(found: object) -> str:
    return str(found)[:200]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder with criteo/train.txt.gz in it")
    parser.add_argument("--lines", type=int, default=10_000, help="how many lines to mutate for `skip` (default: 10000)")
    parser.add_argument("--files", type=int, default=1_000, help="how many small files for `error` (default: 1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", action="store_true", help="with the compiled parser, which small files go without")
    return parser.parse_args()


def main() -> None:
    options = parse()
    if options.compiled:
        compiled.LEAST_BYTES = compiled.LEAST_BYTES_AT_FIRST = 0
    source = options.data / "criteo" / "train.txt.gz"
    if not source.is_file():
        sys.exit(f"fuzz_criteo: there is no {source}")
    with gzip.open(source) as stream:
        real = [line.rstrip(b"\r\n") for line in itertools.islice(stream, 2 * options.lines)]
    if len(real) < _CLEAN_LINES or not all(map(is_valid, real)):
        sys.exit(f"fuzz_criteo: {source} does not hold {_CLEAN_LINES} good lines and nothing else")
    rng, failures, checked = random.Random(options.seed), [], Counter()

    def mutated() -> bytes:
        line = mutate(rng.choice(real), rng)
        for _, part in lines_of(b"x\n" + line)[1:]:
            checked.update({fault.rule for fault in faults(part)} or {"good"})
        return line

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["VFLBENCH_CACHE"] = str(folder / "cache")
        if {"bad_rows", "max_bad_fraction"} <= {field.name for field in fields(Criteo)}:
            lines = [line for _ in range(options.lines) for line in (rng.choice(real), mutated())]
            content = b"\n".join(lines) + rng.choice([b"", b"\n"])
            for compress in (False, True):
                failures += [f"skip: {problem}" for problem in wrong_when_skipping(folder, content, compress)]
            skipped = f"{options.lines} mutated lines, plain and .gz"
        else:
            skipped = "not checked: this version of vflbench has no option bad_rows"
        for i in range(options.files):
            lines = [*rng.sample(real, _CLEAN_LINES), *(label + real[0][1:] for label in (b"0", b"1") for _ in range(6))]
            for _ in range(rng.randint(1, 3)):
                lines.insert(rng.randint(0, len(lines)), mutated())
            content = b"\n".join(lines) + b"\n"
            failures += [f"error, file {i}: {problem}" for problem in wrong_when_refusing(folder, content)]

    print(f"skip   {skipped}\nerror  {options.files} files with 1 to 3 mutated lines each\n")
    print("mutated lines that are   " + "   ".join(f"{rule}: {count}" for rule, count in sorted(checked.items())))
    print(f"failures                 {len(failures)}")
    for problem in failures[:20]:
        print(f"  {problem}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
