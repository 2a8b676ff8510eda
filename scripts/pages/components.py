"""A page for each attack and each defense."""

from collections.abc import Callable, Iterator

from pages.classes import Choice, cell, choices, option_table
from pages.docstrings import Docstring, read_docstring
from vflbench.attacks.base import Attack
from vflbench.cli.components import component
from vflbench.defenses.base import LabelDefense, NonLabelDefense, ParticipantDefense

_MEASURED = (
    "What it reads of each defense, and what is left of each attack, is on the pages "
    "[Every attack against every defense](../experiments/matrix.md) and "
    "[Every attack on features against every defense](../experiments/features.md#every-attack-against-every-defense)."
)


def pages() -> dict[str, str]:
    attacks, defenses = ([choice for choice in choices(group) if choice.cls] for group in ("attack", "defense"))
    texts = {f"attacks/{choice.name}.md": attack_page(choice) for choice in attacks}
    texts |= {f"defenses/{choice.name}.md": defense_page(choice) for choice in defenses}
    texts["attacks/index.md"] = index("Attacks", "attack", attacks, lambda choice: str(_attack(choice).threat.level))
    texts["defenses/index.md"] = index("Defenses", "defense", defenses, lambda choice: _side(choice))
    return texts


def attack_page(choice: Choice) -> str:
    threat = _attack(choice).threat
    knows = (
        f"{threat.sentence()} Level of knowledge: *{threat.level}*. With other options it can be another one; "
        f"`vflbench list attacks` prints that of the defaults."
    )
    return _page(choice, "Threat model", knows)


def defense_page(choice: Choice) -> str:
    return _page(choice, "Who applies it", _side(choice).capitalize() + ".")


def _page(choice: Choice, title: str, about: str) -> str:
    text = _docstring(choice)
    table = ("## Options", option_table(choice.options), "## Measured", _MEASURED)
    return "\n\n".join([*_head(choice, text), f"## {title}", about, *table, *_tail(choice, text)])


def index(title: str, group: str, listed: list[Choice], kind: Callable[[Choice], str]) -> str:
    lines = [f"| {group} | {'level of knowledge' if group == 'attack' else 'applied by'} | what it does |", "|---|---|---|"]
    lines += [
        f"| [{choice.name}]({choice.name}.md) | {kind(choice)} | {cell(_docstring(choice).first)} |" for choice in listed
    ]
    toctree = "\n".join(["```{toctree}", ":hidden:", "", *(choice.name for choice in listed), "```"])
    intro = (
        f"`vflbench train {group}=NAME` chooses one, `'{group}=[NAME,NAME]'` several. "
        "Each page has the formula, the source and the options with their ranges, and says where it was measured."
    )
    return "\n\n".join([f"# {title}", intro, "\n".join(lines), toctree]) + "\n"


def _head(choice: Choice, text: Docstring) -> Iterator[str]:
    yield f"# {choice.name}"
    yield text.first
    yield f"```text\nvflbench train {choice.group}={choice.name}\n```"
    if text.body:
        yield "## How it works"
        yield text.body


def _tail(choice: Choice, text: Docstring) -> Iterator[str]:
    yield "## Source"
    yield text.source or "Ours."
    yield f"Code: `{choice.cls.__module__}`. Config: `configs/{choice.group}/{choice.name}.yaml`."
    yield ""


def _attack(choice: Choice) -> Attack:
    node = choice.content[choice.name]
    return component(node, f"attack/{choice.name}", Attack)


def _side(choice: Choice) -> str:
    sides = (
        (LabelDefense, "the label party"),
        (NonLabelDefense, "a non-label party"),
        (ParticipantDefense, "a participant"),
    )
    return next((words for base, words in sides if issubclass(choice.cls, base)), "whoever sends the message")


def _docstring(choice: Choice) -> Docstring:
    return read_docstring(choice.cls.__doc__ or "", names=(option.name for option in choice.options))
