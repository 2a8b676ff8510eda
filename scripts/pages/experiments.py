"""The list of published and own experiments, with what each costs."""

from pages.docstrings import markdown
from vflbench.files import config_folder
from vflbench.report.published import comments_of


def pages() -> dict[str, str]:
    lines = ["| experiment | what it shows | source | cost |", "|---|---|---|---|"]
    for file in sorted((config_folder() / "experiment").glob("*.yaml")):
        words = comments_of(file)
        cells = (markdown(words[key]).replace("|", "\\|") for key in ("does", "source", "cost"))
        lines.append(f"| `{file.stem}` | " + " | ".join(cells) + " |")
    intro = "`vflbench train experiment=NAME` runs one, and the same command goes on where it was stopped."
    return {"options/experiments.md": "\n".join(["# Experiments", "", intro, "", *lines, ""])}
