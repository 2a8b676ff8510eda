"""The list of published and own experiments, with what each costs."""

from pages.docstrings import markdown
from vflbench.cli.catalog import catalog
from vflbench.places import config_folder


def pages() -> dict[str, str]:
    lines = ["| experiment | what it shows | source | cost |", "|---|---|---|---|"]
    for entry in catalog([config_folder()], "experiment"):
        cells = (markdown(text).replace("|", "\\|") for text in (entry.does, entry.source, entry.cost))
        lines.append(f"| `{entry.name}` | " + " | ".join(cells) + " |")
    intro = "`vflbench train experiment=NAME` runs one, and the same command goes on where it was stopped."
    return {"options/experiments.md": "\n".join(["# Experiments", "", intro, "", *lines, ""])}
