"""The commands of the documentation: found in Markdown, and made small enough for a test."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from pydoc import locate

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from markdown_it import MarkdownIt

from vflbench.results.folder import flat

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("vflbench", "python", "python3", "pip", "bash", "pytest", "pre-commit", "git", "docker", "mkdir")
SHELLS = ("", "sh", "bash", "shell", "console")
LARGEST = {
    **dict.fromkeys(("epochs", "restarts", "sweeps", "critic_steps"), 1),
    **dict.fromkeys(("batches", "local_steps", "rounds", "draws"), 2),
    **dict.fromkeys(("steps", "decoder_steps", "inner_steps"), 3),
    **dict.fromkeys(("width", "decoder_width", "auxiliary", "known"), 16),
} | {"batch_size": 64, "vocabulary": 200, "cut_width": 8, "embedding_dim": 4, "candidates": 8, "warm_up": 5}
"""Last part of an option's key -> its largest value in a test. Ours alone: what doesn't exist in a config isn't set."""
ROWS = 240


@dataclass(frozen=True)
class Command:
    """words: with `...` and comments taken out. line: of the page, from 1."""

    page: str
    line: int
    text: str
    words: tuple[str, ...]


@dataclass(frozen=True)
class File:
    """A file that the reader of a page writes: path below the folder in which the commands run."""

    page: str
    line: int
    path: str
    text: str


def pages():
    """README and the pages of the documentation that are written by hand, as paths below the checkout."""
    docs, computed = ROOT / "docs", {"attacks", "defenses", "options", "api", "added"}
    files = [path for path in sorted(docs.rglob("*.md")) if path.relative_to(docs).parts[0] not in computed]
    files = [path for path in files if not path.with_suffix(".ipynb").exists()]
    return [path.relative_to(ROOT).as_posix() for path in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *files]]


def read_page(page, text):
    """In the order of the page: commands of code blocks, files to write, and commands with options in running text."""
    found, lines, name = [], text.split("\n"), r"([\w./-]+\.(?:py|yaml))"
    for token in MarkdownIt().parse(text):
        line = token.map[0] + 1 if token.map else 0
        if token.type in ("fence", "code_block"):
            language, first = token.info.split(" ")[0], token.content.partition("\n")[0]
            above = "\n".join(lines[line - 3 : line - 1])  # the file's path ends them, or stands in the first comment
            named = re.fullmatch(f"# {name}", first) or re.search(f" in `{name}`:\\s*$", above)
            if language in ("python", "yaml") and named:
                found.append(File(page, line, named[1], token.content))
            elif language in SHELLS:
                found += _commands(page, line, token.content)
        for code in token.children or ():
            if code.type == "code_inline" and re.match("vflbench [a-z]+ .*=", code.content):
                found.append(Command(page, line, code.content, tuple(shlex.split(code.content, comments=True))))
    return found


def _commands(page, line, content):
    """Of one block. `...` stands for the words of the last command of the block without it."""
    whole: tuple[str, ...] = ()
    for text in re.sub(r" *\\\n *", " ", content).split("\n"):
        text = text.removeprefix("$ ").strip()
        if text.split(" ")[0] not in PROGRAMS and not re.match(r"[A-Z_]+=\S* (?:vflbench|python)", text):
            continue
        words = tuple(shlex.split(text, comments=True))
        if "..." in words:
            words = (*(whole or words[:2]), *(word for word in words[2:] if word != "..."))
        elif words[:2] == ("vflbench", "train"):
            whole = words
        yield Command(page, line, text, words)


def small(words, config):
    """Overrides that make a run of `vflbench train` small. config: that of the run, as plain values."""
    given = {word.lstrip("+").split("=")[0] for word in words}
    changes = {}
    sets_rounds = not config.get("protocol", {}).get("_target_", "").endswith("FederatedLr")
    for key, value in flat(config):
        largest = LARGEST.get(key.split(".")[-1])
        if key.startswith(("hydra.", "engine.", "dataset.batches")) or largest is None or isinstance(value, bool):
            continue
        if (isinstance(value, (int, float)) and value > largest) or (sets_rounds and (key, value) == ("batch_size", "auto")):
            changes[key] = largest
    for name, node in (config.get("attack") or {}).items():  # one that the command adds has defaults that it leaves out
        target = node.get("_target_", "")
        if "steps" not in node and target.startswith("vflbench.") and hasattr(locate(target), "steps"):
            changes[f"+attack.{name}.steps"] = LARGEST["steps"]
    dataset = config.get("dataset", {})
    if "rows" in dataset and config.get("protocol", {}).get("_target_", "").endswith(("Split", "SharedEmbeddings")):
        changes["dataset.rows"] = min(ROWS, dataset["rows"] or ROWS)
    if "probe" in config.get("audit", {}) and "audit.probe" not in given:
        changes["audit.probe"] = "false"
    return [f"{key}={value}" for key, value in changes.items()]


def few_runs(words, compared=()):
    """Of a sweep, the first of the values of each option, and the first two of an option that the page compares. Of a
    published experiment a run with the first, and the second, value that it has itself for such an option, else one run.
    """
    kept = [
        word
        for word in words
        if word not in ("-m", "--multirun") and not word.startswith(("hydra.launcher.", "hydra/launcher="))
    ]
    kept = [first_value(word, 2 if word.partition("=")[0] in compared else 1) for word in kept]
    name = next((word.removeprefix("experiment=") for word in words if word.startswith("experiment=")), "")
    if not name:
        sweep = any(len(values_of(word)) > 1 or word.startswith("hydra.sweeper.runs=") for word in kept)
        return [["-m", *kept, "hydra/launcher=basic"] if sweep else kept]
    single = [first_value(word) for word in kept]
    swept = yaml.safe_load((ROOT / "configs" / "experiment" / f"{name}.yaml").read_text("utf-8"))
    sweeper = swept.get("hydra", {}).get("sweeper", {})
    params = sweeper.get("params", {})
    if sweeper.get("runs") and "defense" in compared:
        return [[*single, *run, "hydra.mode=RUN"] for run in sweeper["runs"][:2]]
    key = next((key for key in compared if key in params), "")
    values = values_of(f"{key}={params[key]}")[:2] if key else []
    return [[*single, f"{key}={value.strip()}", "hydra.mode=RUN"] for value in values] or [[*single, "hydra.mode=RUN"]]


def first_value(word, most=1):
    """KEY=A,B -> KEY=A."""
    values = values_of(word)
    return f"{word.partition('=')[0]}={','.join(values[:most])}" if len(values) > 1 else word


def values_of(word):
    """KEY=A,B -> A, B; commas inside of brackets or quotes part no values."""
    key, _, value = word.partition("=")
    override = OverridesParser.create().parse_override(word) if value and not key.startswith("-") else None
    return list(override.sweep_string_iterator()) if override and override.is_sweep_override() else [value]
