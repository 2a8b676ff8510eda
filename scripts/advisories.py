"""Holds the versions in constraints.txt, and the oldest ones that pyproject.toml allows, against known advisories.

    python scripts/advisories.py

pip-audit asks the advisory database of the package index. Where that can't be reached, a line says that nothing was looked up;
`VFLBENCH_REQUIRE_ADVISORIES=1` makes it an error. `FIXED_IN` below needs no network: it has what matters to a program that
reads other people's files. Exit code 1 where a version has an advisory that ALLOWED doesn't explain.
"""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent

FIXED_IN = {
    "filelock": ("3.20.3", "CVE-2025-68146, CVE-2026-22701: a link in place of the lock file"),
    "jinja2": ("3.1.6", "CVE-2025-27516: leaving the sandbox; CVE-2024-22195: attributes in HTML"),
    "pillow": ("10.3", "CVE-2023-50447, CVE-2024-28219: code execution and overflow while reading pictures"),
    "pyarrow": ("14.0.1", "CVE-2023-47248: code execution while reading Arrow and Parquet files"),
    "pyyaml": ("5.4", "CVE-2020-14343: code execution while reading YAML"),
    "scikit-learn": ("1.5", "CVE-2024-5206: words of the data kept in a model"),
    "torch": ("2.6", "CVE-2025-32434: code execution in torch.load, also with weights_only=True"),
    "tqdm": ("4.66.3", "CVE-2024-34062: evaluation of arguments of its command"),
}
"""Package -> the first version without these advisories."""

ALLOWED: dict[str, str] = {}
"""Advisory -> why it does no harm here. Each line is taken out when a version without it can be had."""


def pinned() -> dict[str, Version]:
    """The versions in constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text().split()
    return {name.lower().replace("_", "-"): Version(version) for name, version in (line.split("==") for line in lines)}


def oldest() -> dict[str, Version]:
    """The oldest version of each dependency that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = [line for lines in project["optional-dependencies"].values() for line in lines]
    requirements = [Requirement(line) for line in [*project["dependencies"], *optional]]
    return {
        requirement.name.lower(): Version(specifier.version)
        for requirement in requirements
        for specifier in requirement.specifier
        if specifier.operator == ">="
    }


def too_old(versions: dict[str, Version], where: str) -> Iterator[str]:
    """A line for each version with an advisory in FIXED_IN."""
    for name, (fixed, advisories) in FIXED_IN.items():
        if name in versions and versions[name] < Version(fixed):
            yield f"{where}: {name} {versions[name]} is older than {fixed} ({advisories})"


def audited(report: str) -> tuple[int, list[str]]:
    """How many packages pip-audit could look up, and a line for each advisory that ALLOWED doesn't explain."""
    packages = json.loads(report)["dependencies"]
    known = [package for package in packages if "skip_reason" not in package]
    found = [
        f"{package['name']} {package['version']}: {advisory['id']}, fixed in {advisory['fix_versions'] or 'nothing'}"
        for package in known
        for advisory in package["vulns"]
        if not {advisory["id"], *advisory.get("aliases", ())} & ALLOWED.keys()
    ]
    return len(known), found


def main() -> None:
    wrong = [*too_old(pinned(), "constraints.txt"), *too_old(oldest(), "pyproject.toml")]
    command = ["pip-audit", "-r", str(ROOT / "constraints.txt"), "--no-deps", "--disable-pip", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        count, found = audited(done.stdout)
    except (ValueError, KeyError):
        count, found = 0, []
    print(f"pip-audit looked up {count} of {len(pinned())} packages; {len(found)} advisories are not explained")
    if not count:
        reason = re.sub(r"\s+", " ", done.stderr.strip())[-300:]
        print(
            f"no advisory database could be reached from here, so only the list in {Path(__file__).name} was used: {reason}"
        )
        if os.environ.get("VFLBENCH_REQUIRE_ADVISORIES") == "1":
            wrong.append("VFLBENCH_REQUIRE_ADVISORIES=1, and nothing could be looked up")
    if wrong or found:
        sys.exit("\n".join([*wrong, *found]))


if __name__ == "__main__":
    main()
