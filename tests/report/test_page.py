"""The page as a whole: what stands on it, what it needs, what it says of runs that can't be shown."""

import base64
import csv
import re
from pathlib import Path

import numpy as np
import pytest
from support.outputs_tree import marvell, sweep, write_adversarial_run, write_run

from vflbench.report.charts import library
from vflbench.report.group import sections
from vflbench.report.page import Wishes, alarms, write_report
from vflbench.results.runs import read_tree

ROOT = Path(__file__).resolve().parents[2]
PLAIN = Wishes(formats=())


def read_table(folder, name):
    with (folder / "tables" / f"{name}.csv").open() as file:
        return {row[next(iter(row))]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    root = sweep(tmp_path_factory.mktemp("sweep"))
    pictures = np.random.default_rng(0).random((4, 8, 8))
    np.savez(root / "none0" / "reconstructions.npz", **{"x/a/f2/truth": pictures, "x/a/f2/answer": pictures / 2})
    return write_report([root], root / "report", Wishes(formats=("svg",))).parent


@pytest.mark.slow
def test_the_page_has_sentences_figures_tables_and_who_attacks_and_needs_nothing_but_itself(reported):
    page = (reported / "report.html").read_text()
    threat = "An honest-but-curious attacker at a non-label party, who knows the gradients."
    assert f"<b>norm</b>: {threat} Score each row by the length of its gradient." in page
    order = [page.index(text) for text in ("Privacy and utility", "Guarantees are per run")]
    assert order == sorted(order)
    assert "Pareto front" in (reported / "figures" / "runs_criteo_plane.svg").read_text()
    bare = page.replace(library(), "")
    links = re.findall(r'(?:src|href)="([^"#][^"]{0,30})', bare)
    assert links
    assert all(link.startswith("data:") for link in links)
    assert "url(" not in bare
    assert base64.b64decode(re.search(r"data:image/png;base64,([^\"]+)", page)[1])[:4] == b"\x89PNG"
    for ending, sign in (("md", "| marvell, sumkl 0.04 "), ("tex", r"\toprule")):
        assert sign in (reported / "tables" / f"runs_criteo_settings.{ending}").read_text()


@pytest.mark.slow
def test_the_axes_and_the_layer_are_chosen(tmp_path):
    wishes = Wishes(x="seconds", y="leak_distance:norm", layer="f1", formats=("svg",))
    page = write_report([sweep(tmp_path, seeds=2)], tmp_path / "r", wishes)
    assert "|leak AUC - 0.5| at layer f1, norm" in (page.parent / "figures" / "runs_criteo_plane.svg").read_text()
    line = read_table(page.parent, "runs_criteo_settings")["marvell, sumkl 0.16"]
    assert float(line["|leak AUC - 0.5|"]) == pytest.approx(0.07)


@pytest.mark.slow
def test_an_adversary_is_named_with_its_honest_run_beside_it(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"none{seed}", seed=seed)
        write_adversarial_run(tmp_path / f"scaled{seed}", seed=seed)
    text = write_report([tmp_path], tmp_path / "report", PLAIN).read_text()
    assert "4 finished runs" in text
    assert "<b>scaled, adversary</b>: Party a deviates from the protocol. It multiplies its learning rate by 10." in text
    assert "2 with an honest run beside it" in text


def origin(*, code="c" * 64, plugin=None, data="d" * 64, **manifest):
    plugins = [{"loudest.py": plugin * 64}] if plugin else []
    identity = {"vflbench": "0.1.0", "code": code, "plugins": plugins, "data": {"dataset.path": data}}
    return {"identity": identity, "device": "cpu", **manifest}


@pytest.mark.parametrize(
    ("second", "in_words"),
    [
        (origin(code="e" * 64), "vflbench's code"),
        (origin(data="e" * 64), "data (dataset.path)"),
        (origin(plugin="1"), "plug-ins (loudest.py)"),
        (origin(device="cuda:0"), "device"),
    ],
    ids=["code", "data", "a plug-in", "device"],
)
def test_whatever_decides_numbers_keeps_runs_apart_and_is_named(tmp_path, second, in_words):
    for seed, (facts, auc) in enumerate(((origin(), 0.7), (second, 0.9))):
        write_run(tmp_path / f"run{seed}", seed=seed, test_auc=auc, facts=facts)
    (section,) = sections(read_tree([tmp_path]).runs)
    assert sorted(value.mean for value in section.over_seeds("test_auc")) == [0.7, 0.9]
    assert alarms(section) == [(f"none: its runs are in 2 rows, not averaged, as they differ in {in_words}.", False)]


def test_one_origin_is_one_row_also_where_packages_differ_which_is_said(tmp_path):
    for seed, version in enumerate(("2.6", "2.7")):
        write_run(tmp_path / version, seed=seed, facts=origin(versions={"torch": version}))
    (section,) = sections(read_tree([tmp_path]).runs)
    assert alarms(section) == [("none: averaged over torch 2.6 and 2.7, which may round differently.", False)]


@pytest.mark.slow
def test_a_leak_above_a_ceiling_is_an_alarm(tmp_path):
    keywords = marvell(0.16, 0.68)
    place = {"attack": "norm", "message": "gradient", "party": "a", "layer": "f2", "figure": "AUC"}
    exceeded = [place | {"value": 0.9, "low": 0.89, "high": 0.91, "ceiling": 0.68}]
    keywords["guarantees"]["marvell"] |= {"bounds": "the leak", "assumption": "so", "exceeded": exceeded}
    write_run(tmp_path / "run", **keywords)
    text = write_report([tmp_path], tmp_path / "report", PLAIN).read_text()
    assert re.search('<p class="alarm">marvell: .*above the ceiling of marvell', text, re.IGNORECASE)


def test_what_stands_between_backticks_is_code_and_the_rest_is_text(tmp_path, monkeypatch):
    monkeypatch.setattr("vflbench.report.charts.library", lambda: "")
    threats = {name: {"text": text} for name, text in (("norm", "a `b<` <i>"), ("other", "``c`` d"))}
    write_run(tmp_path / "run", facts={"threats": threats})
    text = write_report([tmp_path], tmp_path / "report", PLAIN).read_text()
    for said in ("a <code>b&lt;</code> &lt;i&gt;", "<code>c</code> d"):
        assert said in text
