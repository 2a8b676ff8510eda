"""The API reference: every public name of the package, with its signature and its docstring."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from typing import Any

import vflbench
from pages.docstrings import Docstring, read_docstring

SECTIONS = {
    "Functions": ("train", "audit", "load", "write_batch", "flush_labels"),
    "Recorded messages": ("Recording", "RecordedMessages", "Round", "Message", "Kind", "AuditReport", "AuditResult"),
    "Attacks": (
        *("Attack", "Threat", "Role", "View", "Scores", "ClassCounts", "ColumnScores", "RebuiltRows", "RebuiltBatch"),
        *("Unavailable", "Undeclared"),
    ),
    "Facts that an attack can declare": (
        *("Fact", "Gradients", "SummedGradients", "Embeddings", "PartyFeatures", "LocalModel", "ClassShares", "Known"),
        *("KnownColumn", "BatchHints", "ClassHints", "Predictions", "Updates", "Labels", "LocalTop", "Auxiliary"),
        *("Compression", "NoiseMean", "PeerArchitectures", "PeerModels", "Queries"),
    ),
    "Defenses": ("Defense", "LabelDefense", "NonLabelDefense", "ParticipantDefense", "Context", "WithheldError"),
    "Other parts": ("Dataset", "Model", "Optimizer", "Protocol", "Adversary", "Logger", "UserError"),
}


def pages() -> dict[str, str]:
    public = {name for name in vflbench.__all__ if not name.startswith("_")}
    listed = {name for names in SECTIONS.values() for name in names}
    if public != listed:
        raise ValueError(f"scripts/pages/api.py and vflbench.__all__ differ in {sorted(public ^ listed)}")
    parts = ["# API", "What `import vflbench` gives. Everything else is private and may change."]
    for title, names in SECTIONS.items():
        parts.append(f"## {title}")
        for name in names:
            parts += _described(name, getattr(vflbench, name))
    return {"api/index.md": "\n\n".join(parts) + "\n"}


def _described(name: str, thing: Any) -> Iterator[str]:
    yield f"### {name}"
    yield f"```python\n{signature(name, thing)}\n```"
    yield from _text(read_docstring(thing.__doc__ or ""))
    if inspect.isclass(thing):
        for method, value in _methods(thing):
            yield f"```python\n{signature(f'{name}.{method}', value)}\n```"
            yield from _text(read_docstring(value.__doc__ or ""))


def _text(docstring: Docstring) -> Iterator[str]:
    yield from filter(None, (docstring.first, docstring.body, docstring.source and f"Source: {docstring.source}"))


def _methods(cls: type) -> Iterator[tuple[str, Any]]:
    """Public functions with a docstring that the class itself defines."""
    for name, value in vars(cls).items():
        function = inspect.unwrap(value.__func__ if isinstance(value, (classmethod, staticmethod)) else value)
        if not name.startswith("_") and inspect.isfunction(function) and function.__doc__:
            yield name, function


def signature(name: str, thing: Any) -> str:
    """One parameter a line where it is long."""
    kind = "class " if inspect.isclass(thing) else ""
    if inspect.isclass(thing) and not _is_made(thing):
        return f"{kind}{name}"
    of = inspect.signature(thing)
    parameters = [_short(str(parameter)) for parameter in of.parameters.values() if parameter.name != "self"]
    back = (
        "" if kind or of.return_annotation is of.empty else f" -> {_short(inspect.formatannotation(of.return_annotation))}"
    )
    line = f"{kind}{name}({', '.join(parameters)}){back}"
    if len(line) <= 100:
        return line
    return f"{kind}{name}(\n" + "".join(f"    {parameter},\n" for parameter in parameters) + f"){back}"


def _is_made(cls: type) -> bool:
    """Whether users make it: it says how."""
    return "__init__" in vars(cls) or dataclasses.is_dataclass(cls)


def _short(text: str) -> str:
    """Types without their modules, and defaults that are objects as dots."""
    text = re.sub(r"= <.*>", "= ...", text)
    return re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", text).replace("'", "")
