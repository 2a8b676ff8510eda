"""Writes the library that draws a page's figures, as the installed vl-convert-python bundles it, with its licences.

    python scripts/vega_bundle.py

To be run, and its output committed, when constraints.txt names another version of vl-convert-python. vega_licences.txt holds
the licences of the packages in it; where the new version has other packages, theirs belong there too.
"""

from importlib.metadata import version
from pathlib import Path

import vl_convert

TEMPLATES = Path(__file__).resolve().parent.parent / "vflbench" / "results" / "report" / "templates"


def bundle() -> str:
    """The library in one script, without anything that would end a script in HTML."""
    versions = f"Vega {vl_convert.get_vega_version()}, Vega-Lite {vl_convert.get_vegalite_versions()[-1]}"
    maker = f"vl-convert-python {version('vl-convert-python')}"
    licences = (TEMPLATES / "vega_licences.txt").read_text("utf-8")
    library = vl_convert.javascript_bundle(vl_version=vl_convert.get_vegalite_versions()[-1])
    text = (
        f"/*! {versions}, Vega-Embed {vl_convert.get_vega_embed_version()}, bundled by {maker}.\n\n{licences}*/\n{library}\n"
    )
    assert "</script" not in text.lower()
    assert "<!--" not in text
    assert "\r" not in text
    return text


if __name__ == "__main__":
    (TEMPLATES / "vega.js").write_text(bundle(), "utf-8")
