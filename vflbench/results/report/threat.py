"""What an attack is and where it stands, in a sentence, read from its source without importing it."""

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_SEATS = {"NON_LABEL": "a non-label party", "LABEL": "the label party", "PARTICIPANT": "one of the participants"}
PACKAGE = Path(__file__).resolve().parents[2]


def threat(name: str, options: Mapping[str, Any]) -> str:
    """options: its part of a config.yaml. An attack of the user's own is only named."""
    target = str(options.get("_target_", ""))
    module, _, cls = target.rpartition(".")
    file = PACKAGE.parent / (module.replace(".", "/") + ".py")
    if not module.startswith("vflbench.") or not file.is_file():
        return f"{target or name}: an attack of your own; see its docstring."
    node = next((n for n in ast.parse(file.read_text()).body if isinstance(n, ast.ClassDef) and n.name == cls), None)
    if node is None:
        return f"{name}: no longer part of this version."
    fields = {t.id: s.value for s in node.body if isinstance(s, ast.Assign) for t in s.targets if isinstance(t, ast.Name)}
    seat = next(
        (text for word, text in _SEATS.items() if f"Seat.{word}" == ast.unparse(fields.get("seat", node.bases[0]))), None
    )
    knows = (
        sorted({n.attr.lower() for n in ast.walk(fields["knows"]) if isinstance(n, ast.Attribute)})
        if "knows" in fields
        else []
    )
    if options.get("message") == "gradients":
        knows = ["gradients" if word == "embeddings" else word for word in knows]
    does = " ".join((ast.get_docstring(node) or name).split("\n\n")[0].split())
    told = f"An honest-but-curious attacker at {seat or 'a non-label party'}"
    return f"{told}, who knows {_listed([word.replace('_', ' ') for word in knows])}. {does}" if knows else f"{told}. {does}"


def _listed(words: list[str]) -> str:
    names = {
        "prior": "the share of positives",
        "hints": "a few labels",
        "features": "its own columns",
        "updates": "updates and models of every round",
    }
    names |= {"peer model": "the other parties' networks"}
    words = [names.get(word, f"the {word}") for word in words]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
