"""The documents that the project follows, as data: what each of them states, and where the same is measured here.

docs/experiments/published/NNN.json holds what a document says, in its `parts`: tables, figures, and claims of the text. A
number that an experiment repeats is in configs/experiment/NAME.json alone, and the part names the experiment. sentences.json
beside them has a sentence on each part: agreement, disagreement, and why.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vflbench.errors import UserError
from vflbench.report.reproductions import PublishedExperiment, Value

SENTENCES = "sentences.json"


@dataclass(frozen=True)
class Part:
    """A table, a figure or a claim. said: what the document says, as JSON values.

    experiments: those whose values are numbers of this part, of which select takes some by their options, and which by a
    word of what they are; more: experiments that are shown beside them. see: names of other parts that hold its numbers.
    view: how it is shown. ours: the name of what is computed here. reason: why there is nothing to compare.
    """

    kind: str
    name: str
    said: Mapping[str, Any]
    experiments: tuple[str, ...] = ()
    more: tuple[str, ...] = ()
    select: Mapping[str, Any] = field(default_factory=dict)
    which: str = ""
    see: tuple[str, ...] = ()
    view: str = ""
    ours: str = ""
    reason: str = ""

    @property
    def key(self) -> str:
        return f"{self.kind} {self.name}"

    def values(self, experiments: Mapping[str, PublishedExperiment]) -> list[tuple[str, Value]]:
        """The values of its experiments, each with the name of the experiment."""
        return [
            (name, value)
            for name in self.experiments
            if name in experiments
            for value in experiments[name].values
            if self.which in value.what and all(value.options.get(key) == wanted for key, wanted in self.select.items())
        ]


@dataclass(frozen=True)
class Document:
    """setting: what it says of data and training; here: dotted key of that -> the same here, `@` before a measured fact.

    ambiguous: what is damaged in the text, or contradicts itself.
    """

    name: str
    source: Mapping[str, Any]
    setting: Mapping[str, Any]
    here: Mapping[str, str]
    parts: tuple[Part, ...]
    ambiguous: tuple[str, ...]
    sentences: Mapping[str, str] = field(default_factory=dict)

    def part(self, key: str) -> Part:
        return next(part for part in self.parts if part.key == key)


def read_documents(folder: Path) -> list[Document]:
    """Those in a folder, by name. Raises UserError if one can't be read."""
    files = sorted(file for file in folder.glob("*.json") if file.name != SENTENCES)
    if not files:
        raise UserError("there are no documents in it", key="documents", value=folder)
    sentences = json.loads((folder / SENTENCES).read_text()) if (folder / SENTENCES).exists() else {}
    return [_document(file, sentences.get(file.stem, {})) for file in files]


def _document(file: Path, sentences: Mapping[str, str]) -> Document:
    try:
        text = json.loads(file.read_text())
        parts = tuple(_part(part) for part in text["parts"])
        ambiguous = tuple(text["ambiguous"])
        return Document(text["document"], text["source"], text["setting"], text["here"], parts, ambiguous, sentences)
    except (ValueError, KeyError, TypeError) as error:
        problem = f"this file does not have the expected content ({error})"
        raise UserError(problem, key="document", value=file) from error


def _part(said: Mapping[str, Any]) -> Part:
    rest = dict(said)
    fields: dict[str, Any] = {name: tuple(rest.pop(name, ())) for name in ("experiments", "more", "see")}
    fields |= {name: rest.pop(name, "") for name in ("which", "view", "ours", "reason")}
    fields |= {"kind": rest.pop("kind"), "name": rest.pop("name"), "select": rest.pop("select", {})}
    return Part(**fields, said=rest)


def leaves(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted key -> value of nested mappings; nothing for what the text does not say (null)."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from leaves(inner, f"{prefix}.{key}" if prefix else str(key))
    elif value is not None:
        yield prefix, value


def numbers_in(value: Any) -> list[float]:
    """All numbers in nested lists and mappings, also in the keys' and texts' words."""
    if isinstance(value, Mapping):
        return [n for key, inner in value.items() for n in (*numbers_in(key), *numbers_in(inner))]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [n for inner in value for n in numbers_in(inner)]
    if isinstance(value, str):
        return [float(word) for word in value.replace(",", " ").split() if _is_number(word)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True
