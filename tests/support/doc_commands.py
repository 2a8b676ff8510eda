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
    """In the order of the page: commands of code blocks, files to write, and whole commands in running text."""
    found: list[Command | File] = []
    for start, language, lines in blocks(text):
        if language in ("python", "yaml") and lines and (name := _path(lines[0], text.split("\n")[start - 4 : start - 2])):
            found.append(File(page, start, name[1], "\n".join(lines) + "\n"))
        elif language in SHELLS:
            found += _commands(page, start, lines)
    found += _inline(page, text)
    return sorted(found, key=lambda entry: entry.line)


def _path(first, above):
    """Of the file that a block is: in the comment that it begins with, or at the end of the lines above, ` in `PATH`:`."""
    name = r"([\w./-]+\.(?:py|yaml))"
    return re.fullmatch(f"# {name}", first) or re.search(f" in `{name}`:\\s*$", "\n".join(above))


def blocks(text):
    """First line, language, and lines of every code block, fenced or indented."""
    for token in MarkdownIt().parse(text):
        if token.type in ("fence", "code_block"):
            first = token.map[0] + 1 + (token.type == "fence")
            yield first, token.info.split(" ")[0], token.content.splitlines()


def _commands(page, start, lines):
    """Of one block. `...` stands for the words of the last command of the block without it."""
    whole: tuple[str, ...] = ()
    number = 0
    while number < len(lines):
        first, text = number, lines[number].removeprefix("$ ").strip()
        while text.endswith("\\") and number + 1 < len(lines):
            number += 1
            text = text[:-1].rstrip() + " " + lines[number].strip()
        number += 1
        if text.split(" ")[0] not in PROGRAMS and not re.match(r"[A-Z_]+=\S* (?:vflbench|python)", text):
            continue
        words = tuple(shlex.split(text, comments=True))
        if "..." in words:
            rest = tuple(word for word in words[2:] if word != "...")
            words = (*whole, *rest) if whole else words
        elif words[:2] == ("vflbench", "train"):
            whole = words
        yield Command(page, start + first, text, words)


def _inline(page, text):
    """`vflbench train KEY=VALUE` in running text; without options it is the name of a command."""
    without = re.sub(r"^\s*```.*?^\s*```", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    for match in re.finditer(r"(?<!`)`(vflbench [a-z]+ [^`]*=[^`]*)`", without):
        line = without[: match.start()].count("\n") + 1
        yield Command(page, line, match[1], tuple(shlex.split(match[1].replace("\n", " "), comments=True)))


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
    kept: list[str] = []
    for word in words:
        if word not in ("-m", "--multirun") and not word.startswith(("hydra.launcher.", "hydra/launcher=")):
            key, _, _ = word.partition("=")
            values = values_of(word)
            few = values[: 2 if key in compared else 1]
            kept.append(f"{key}={','.join(few)}" if len(values) > 1 else word)
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


def first_value(word):
    """KEY=A,B -> KEY=A."""
    values = values_of(word)
    return f"{word.partition('=')[0]}={values[0]}" if len(values) > 1 else word


def values_of(word):
    """KEY=A,B -> A, B; commas inside of brackets or quotes part no values."""
    key, _, value = word.partition("=")
    override = OverridesParser.create().parse_override(word) if value and not key.startswith("-") else None
    return list(override.sweep_string_iterator()) if override and override.is_sweep_override() else [value]
