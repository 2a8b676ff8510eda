"""The pages of the documentation that are computed: from docstrings, configs, measured tables and the files of examples."""

from pathlib import Path

from pages import api, components, copies, experiments, notebooks, options

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FOLDERS = ("attacks", "defenses", "options", "api", "added")
"""Of computed pages, below docs. Git ignores them."""


def pages() -> dict[str, str]:
    """Path below docs -> Markdown."""
    return {
        **components.pages(),
        **options.pages(),
        **experiments.pages(),
        **api.pages(),
        **notebooks.pages(DOCS / "notebooks"),
        **copies.pages(ROOT),
    }


def write(folder: Path = DOCS) -> None:
    """Write the pages that changed, and remove those that are no longer computed."""
    computed = pages()
    for name in FOLDERS:
        for old in (folder / name).glob("**/*.md"):
            if old.relative_to(folder).as_posix() not in computed:
                old.unlink()
    for path, text in computed.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.is_file() or file.read_text("utf-8") != text:
            file.write_text(text, encoding="utf-8")
