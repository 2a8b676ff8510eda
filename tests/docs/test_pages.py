"""README and the pages: links lead somewhere, and the tables of attacks, defenses and datasets name every choice."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMPUTED = ("attacks", "defenses", "options", "api", "added")
"""Folders of docs that are written when the site is built."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md"]
PAGES += [page for page in (ROOT / "docs").glob("*/**/*.md") if page.relative_to(ROOT / "docs").parts[0] not in COMPUTED]
PAGES += [ROOT / "docs" / f"{name}.md" for name in ("tutorial", "faq", "performance")]
CHOICES = ("attack", "defense", "dataset")


def words(page: Path) -> str:
    """Its text without blocks of code."""
    return re.sub(r"^(```+).*?^\1$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Of its headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", words(page), re.MULTILINE)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)|[`*]", lambda found: found[1] or "", title).strip().lower() for title in titles)
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def test_every_link_leads_to_a_file_and_a_heading():
    lost = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)\s]+)\)", words(page)):
            if re.match(r"https?:|mailto:", target):
                continue
            file, _, heading = target.partition("#")
            there = page.parent / file if file else page
            if not there.exists() or (heading and there.suffix == ".md" and heading not in anchors(there)):
                lost.append(f"{page.relative_to(ROOT)}: {target}")
    assert not lost


@pytest.mark.parametrize("group", CHOICES)
def test_the_reference_names_every_choice(group):
    page = (ROOT / "docs" / "reference" / f"{group}s.md").read_text("utf-8")
    first_cells = " ".join(re.findall(r"^\| (.*?) \|", page, re.MULTILINE))
    names = {file.stem for file in (ROOT / "configs" / group).glob("*.yaml")} - {"none", "strongest"}  # a set of attacks
    assert not [name for name in sorted(names) if f"`{name}`" not in first_cells]
