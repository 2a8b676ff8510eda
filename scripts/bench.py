"""Every figure of vflbench's speed, beside a named alternative and a limit.

    python scripts/bench.py                          # all topics, at full size: hours on two cores
    python scripts/bench.py --quick                  # all of them small: does it run?
    python scripts/bench.py startup dcor             # these topics
    python scripts/bench.py step --help              # the options of one topic
    python scripts/bench.py step --ids 1000000       # a topic with options of its own

A table a topic: CPU seconds (of all processes and threads), the clock and memory; the same for the alternative, and how many
times faster vflbench is than it; the same for the limit, which nothing that does the work can beat, and how many times the
limit vflbench takes; the goals, and whether they were met. Ratios are of CPU seconds, as machines are busy. Then the
machine: its processor with what it has for products, its load before, packages.
"""

import argparse
import ast
import importlib
import os
import platform
import sys
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
            print(f"{topic:<16}{described(topic)}")
        return
    failed = []
    for topic in options.topics or TOPICS:
        words = ["--quick"] * options.quick
        try:
            measure(topic, topic_options(topic, words))
        except Exception as error:  # the other topics still have figures
            failed.append(topic)
            print(f"{topic}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
    sys.exit(f"no figures of {', '.join(failed)}" if failed else 0)


def common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="small sizes, one round: shows that it runs, and no more")


def one(topic: str, words: list[str]) -> None:
    """A topic with options of its own; or, with --worker, what runs in a process that it started."""
    options = topic_options(topic, words)
    if getattr(options, "worker", None):
        load(topic).work(options)
    else:
        measure(topic, options)


def topic_options(topic: str, words: list[str]) -> argparse.Namespace:
    module = load(topic)
    parser = argparse.ArgumentParser(
        prog=f"bench.py {topic}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    common(parser)
    module.arguments(parser)
    return parser.parse_args(words)


def described(topic: str) -> str:
    """The title of a topic; nothing is imported."""
    return " ".join((ast.get_docstring(ast.parse((FOLDER / f"{topic}.py").read_text())) or "").split("\n\n")[0].split())


def load(topic: str) -> Any:
    return importlib.import_module(f"benches.{topic}")


def measure(topic: str, options: argparse.Namespace) -> None:
    """Print the lines of a topic, and the state of the machine."""
    load_before = os.getloadavg()[0]
    print(f"\n{topic}: {described(topic)}", flush=True)
    lines = each(load(topic).bench(options), lambda text: print(text, file=sys.stderr, flush=True))
    print(f"{table(lines)}\n{machine()}, load {load_before:.1f} before", flush=True)


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
    """Its name, and which of the instructions that matter for products it has."""
    try:
        lines = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    except OSError:
        return platform.processor() or platform.machine()
    facts = {name.strip(): value.strip() for name, _, value in lines}
    flags = [flag for flag in facts.get("flags", "").split() if flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16")]
    return f"{facts.get('model name', platform.machine())} ({' '.join(flags)})"


if __name__ == "__main__":
    main()
