"""Every figure of vflbench's speed, beside a named alternative and a limit.

    python scripts/bench.py                          # all topics, at full size: hours on two cores
    python scripts/bench.py --quick                  # all of them small: does it run?
    python scripts/bench.py startup dcor             # these topics
    python scripts/bench.py step --help              # the options of one topic
    python scripts/bench.py step --ids 1000000       # a topic with options of its own
    python scripts/bench.py --page tables.md                     # writes the tables as Markdown

A table a topic: CPU seconds (of all processes and threads), the clock and memory; the same for the alternative, and how many
times faster vflbench is than it; the same for the limit, which nothing that does the work can beat, and how many times the
limit vflbench takes; the goals, and whether they were met. Ratios are of CPU seconds, as machines are busy.
"""

import argparse
import ast
import importlib
import os
import platform
import sys
import time
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from benches.lines import each, table

FOLDER = Path(__file__).with_name("benches")
TOPICS = sorted(file.stem for file in FOLDER.glob("*.py") if file.stem not in ("__init__", "lines"))


def main() -> None:
    words = sys.argv[1:]
    if words and words[0] in TOPICS and words[1:] and words[1].startswith("-"):
        one(words[0], words[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help=f"of {', '.join(TOPICS)}; by default all")
    parser.add_argument("--list", action="store_true", help="say what each topic measures")
    common(parser)
    options = parser.parse_args()
    if unknown := [topic for topic in options.topics if topic not in TOPICS]:
        parser.error(f"there is no topic {unknown[0]}; there are {', '.join(TOPICS)}")
    if options.list:
        for topic in TOPICS:
            print(f"{topic:<16}{described(topic)[0]}")
        return
    results, failed = [], []
    for topic in options.topics or TOPICS:
        words = ["--quick"] * options.quick
        try:
            results.append(measure(topic, topic_options(topic, words), *words))
            write(results, options.page)  # so that nothing is lost where a later one is stopped
        except Exception as error:  # the other topics still have figures
            failed.append(topic)
            print(f"{topic}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.exit(f"no figures of {', '.join(failed)}" if failed else 0)


def common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: shows that it runs, and no more")
    parser.add_argument("--page", type=Path, help="write the tables as a page of Markdown")


def one(topic: str, words: list[str]) -> None:
    """A topic with options of its own; or, with --worker, what runs in a process that it started."""
    options = topic_options(topic, words)
    if getattr(options, "worker", None):
        load(topic).work(options)
    else:
        write([measure(topic, options, *words)], options.page)


def topic_options(topic: str, words: list[str]) -> argparse.Namespace:
    module = load(topic)
    parser = argparse.ArgumentParser(
        prog=f"bench.py {topic}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common(parser)
    module.arguments(parser)
    return parser.parse_args(words)


def described(topic: str) -> list[str]:
    """The title of a topic, and the other paragraphs of its docstring; nothing is imported."""
    title, *rest = (ast.get_docstring(ast.parse((FOLDER / f"{topic}.py").read_text())) or "").split("\n\n")
    return [" ".join(title.split()), *rest]


def load(topic: str) -> Any:
    return importlib.import_module(f"benches.{topic}")


def measure(topic: str, options: argparse.Namespace, *words: str) -> dict[str, Any]:
    """The lines of a topic, and the state of the machine before and after. words: those that chose the options."""
    began = time.perf_counter()
    print(f"\n{topic}: {described(topic)[0]}", flush=True)
    lines = each(load(topic).bench(options), lambda text: print(text, file=sys.stderr, flush=True))
    print(table(lines), flush=True)
    return {
        "topic": topic,
        "lines": lines,
        "machine": machine(),
        "command": " ".join(["python scripts/bench.py", topic, *deciding_words(words)]),
        "quick": options.quick,
        "seconds": time.perf_counter() - began,
    }


def deciding_words(words: Sequence[str]) -> list[str]:
    """Those that decide figures: not where they are kept."""
    files = [i for i, word in enumerate(words) if word == "--page"]
    return [word for i, word in enumerate(words) if i not in files and i - 1 not in files]


def machine() -> str:
    names = [f"Python {platform.python_version()}"]
    for package in ("torch", "numpy", "numba", "pyarrow"):
        try:
            names.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            names.append(f"no {package}")
    names.append(f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'not set')}")
    return f"{cpu()}, {os.cpu_count()} cores; {', '.join(names)}"


def cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def write(results: list[dict[str, Any]], page: Path | None) -> None:
    if page:
        page.write_text(markdown(results))


def markdown(results: list[dict[str, Any]]) -> str:
    """The page: a section a topic, with what its docstring says."""
    parts = [
        "# What vflbench costs",
        "The output of `python scripts/bench.py --page`.",
        "*CPU* is the CPU seconds of all processes and threads of what was measured. Ratios are of CPU seconds, unless a "
        "line says otherwise. *Times faster* is the cost of the alternative divided by ours. *Of limit* is our cost "
        "divided by the limit.",
    ]
    for result in sorted(results, key=lambda result: TOPICS.index(result["topic"])):
        title, *rest = described(result["topic"])
        prose = "\n\n".join(part for part in rest if not part.lstrip().startswith("python "))
        state = " Small sizes, which show that it runs and no more." * result["quick"]
        parts += [
            f"## {result['topic']}: {title}",
            f"`{result['command']}`, {result['seconds']:.0f} s.{state}",
        ]
        parts += [table(result["lines"], markdown=True)]
        parts += [f"```\n{prose}\n```"] if prose else []
        parts += [f"{result['machine']}."]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    main()
