"""Figures as files: SVG, PNG and PDF of one drawing, without a browser and without a network."""

import json
from collections.abc import Iterator, Sequence

from vflbench.report.figure import WIDTH, Figure

FORMATS = ("svg", "png", "pdf")
_VERSION = "6.4"  # of Vega-Lite
_WIDE = 900  # pixels that a figure has with long names beside it
_SCALE = 2.0  # pixels of a PNG for each of the drawing's


def files(figure: Figure, formats: Sequence[str] = FORMATS) -> Iterator[tuple[str, bytes]]:
    """(name, content) for each format: svg | png | pdf."""
    import vl_convert  # 100 MB, which a page does not need

    drawn = svg(figure) if formats else ""
    for ending in formats:
        if ending == "svg":
            content = drawn.encode()
        elif ending == "png":
            content = bytes(vl_convert.svg_to_png(drawn, scale=_SCALE))
        elif ending == "pdf":
            content = bytes(vl_convert.svg_to_pdf(drawn))
        else:
            raise ValueError(f"no format of figures: {ending}")
        yield f"{figure.slug}.{ending}", content


def svg(figure: Figure) -> str:
    """In its light colours, WIDTH pixels wide if it is as wide as its place."""
    import vl_convert

    spec = dict(figure.spec)
    if spec.get("width") == "container":
        spec["width"] = WIDTH - 70
        across = _WIDE if figure.is_wide else WIDTH
        spec["params"] = [p | {"value": across} if p["name"] == "across" else p for p in spec["params"]]
    drawn: str = vl_convert.vegalite_to_svg(
        json.dumps(spec, allow_nan=False), vl_version=_VERSION, allowed_base_urls=[], show_warnings=False
    )
    return drawn
