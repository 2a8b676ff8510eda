"""Figures on a page: sealed, and drawn by the library that the tested version of vl-convert makes."""

import json
from importlib.metadata import version

import altair as alt
import pytest
import script_runs
from report.test_plot_figure import HOSTILE, every

from vflbench.report.embedded import as_json, digest, library, on_page
from vflbench.report.plot_figure import figure_of


def test_a_specification_cannot_end_its_script_and_stays_what_it_is():
    figure = figure_of(every(HOSTILE))
    written = as_json(figure)
    assert not set("<>&") & set(written)
    assert written.isascii()
    assert json.loads(written) == figure.spec
    assert on_page(figure)["has_data"]


def test_the_library_is_of_the_version_that_altair_writes_for_and_can_stand_in_a_page():
    head = library()[:200]
    assert f"Vega-Lite {alt.SCHEMA_VERSION.removeprefix('v').rpartition('.')[0]}," in head
    assert "</script" not in library().lower()
    assert "<!--" not in library()
    assert "\r" not in library()
    assert "University of Washington Interactive Data Lab" in library()[:20_000]
    assert digest("a") == "'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs='"


@pytest.mark.slow
def test_the_library_is_what_vl_convert_makes():
    made_by = library()[:200].rpartition("vl-convert-python ")[2].split("\n")[0].rstrip(".")
    if version("vl-convert-python") != made_by:
        pytest.skip(f"the library is that of vl-convert-python {made_by}")
    assert script_runs.load("vega_bundle").bundle() == library()
