"""The documentation site: `sphinx-build -W --keep-going -n docs site`. Nothing is loaded from a network."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from pages import write
from pages.accessible import mend
from pages.links import setup_links

from vflbench import __version__

project = "vflbench"
author = "The vflbench authors"
copyright = f"2026, {author}"  # noqa: A001
version = release = __version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["examples/**", "**/*.ipynb", "README.md"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence", "deflist"]
suppress_warnings = ["myst.header"]  # pages of GitHub may skip a level

html_theme = "furo"
html_title = f"vflbench {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True, "footer_icons": []}
pygments_style, pygments_dark_style = "a11y-high-contrast-light", "a11y-high-contrast-dark"


def setup(app) -> None:
    write()
    setup_links(app)
    app.connect("build-finished", lambda app, exception: exception or mend(Path(app.outdir)))
