"""The page as a whole: what stands on it, its size, without torch, and in a browser."""

import base64
import csv
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from outputs_tree import interval, leak, marvell, sweep, write_adversarial_run, write_run
from PIL import Image

from vflbench.errors import UserError
from vflbench.report.charts import files, library
from vflbench.report.sections import Wishes
from vflbench.report.site import write_report

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    root = sweep(tmp_path_factory.mktemp("sweep"))
    pictures = np.random.default_rng(0).random((4, 8, 8))
    np.savez(root / "none0" / "reconstructions.npz", **{"x/a/f2/truth": pictures, "x/a/f2/answer": pictures / 2})
    return write_report([root], root / "report").parent


@pytest.fixture
def without_png(monkeypatch):
    """The figures as SVG alone; drawing the others takes time."""
    monkeypatch.setattr("vflbench.report.site.files", lambda figure, *_: files(figure, ("svg",)))


def read_table(folder, name):
    with (folder / "tables" / f"{name}.csv").open() as file:
        return {row[next(iter(row))]: row for row in csv.DictReader(file)}


@pytest.mark.slow
def test_tables_hold_the_numbers_in_full_and_say_how_many_runs(reported):
    settings = read_table(reported, "runs_criteo_settings")
    tight = settings["marvell, sumkl 0.04"]
    assert float(tight["test AUC"]) == pytest.approx(0.72)
    assert float(tight["test AUC low"]) < 0.72 < float(tight["test AUC high"])
    assert (tight["runs"], tight["runs in DCS"], tight["worst attack"]) == ("3", "3", "norm on gradients")
    assert float(tight["ceiling, one message"]) == pytest.approx(0.54)
    assert float(settings["none"]["|leak AUC - 0.5|"]) == pytest.approx(0.41)
    differences = read_table(reported, "runs_criteo_differences")
    assert float(differences["marvell, sumkl 0.04"]["change of test AUC"]) == pytest.approx(-0.05)
    headlines = read_table(reported, "runs_criteo_headlines")
    assert headlines["none"]["setting with leak <= 0.55"] == "no setting"
    assert headlines["marvell"]["setting with leak <= 0.55"] == "marvell, sumkl 0.04"
    cost = read_table(reported, "runs_criteo_cost")["none"]
    assert (float(cost["seconds a run"]), float(cost["MB sent in training"])) == (2.5, 1.5)
    for ending, sign in (("md", "| marvell, sumkl 0.04 | 3 | 0.720 ("), ("tex", r"\toprule")):
        assert sign in (reported / "tables" / f"runs_criteo_settings.{ending}").read_text()


def test_the_plane_names_every_setting_and_the_sweep_shows_the_ceilings(reported):
    page = (reported / "report.html").read_text()
    for name in ("none", "marvell, sumkl 0.04", "marvell, sumkl 0.16"):
        assert f'"{name}\\ntest AUC' in page
    assert "promised ceiling, all messages of a run, sumkl 0.04: 0.640" in page
    assert "promised ceiling, all messages of a run" in (reported / "figures" / "runs_criteo_along_sumkl.svg").read_text()
    assert "Pareto front" in (reported / "figures" / "runs_criteo_plane.svg").read_text()
    for picture in (reported / "figures").glob("*.png"):
        assert np.ptp(np.asarray(Image.open(picture).convert("RGB")).astype(int)) > 120
    assert "Guarantees are per run" in page
    threat = "An honest-but-curious attacker at a non-label party, who knows the gradients."
    assert f"<b>norm</b>: {threat} Score each row by the length of its gradient." in page


def test_the_page_needs_nothing_but_itself(reported):
    page = (reported / "report.html").read_text().replace(library(), "")
    links = re.findall(r'(?:src|href)="([^"#][^"]{0,30})', page)
    assert links
    assert all(link.startswith("data:") for link in links)
    assert "url(" not in page
    assert base64.b64decode(re.search(r"data:image/png;base64,([^\"]+)", page)[1])[:4] == b"\x89PNG"


@pytest.mark.slow
@pytest.mark.usefixtures("without_png")
def test_one_seed_says_so(tmp_path):
    page = write_report([sweep(tmp_path, seeds=1)], tmp_path / "report")
    assert "0.760 (1 run: no interval)" in page.read_text()
    assert read_table(page.parent, "runs_criteo_settings")["none"]["test AUC low"] == ""


@pytest.mark.slow
@pytest.mark.usefixtures("without_png")
def test_the_axes_and_the_layer_are_chosen(tmp_path):
    sweep(tmp_path, seeds=2)
    page = write_report([tmp_path], tmp_path / "r", Wishes(x="seconds", y="leak_distance:norm", layer="f1"))
    plane = (page.parent / "figures" / "runs_criteo_plane.svg").read_text()
    assert "|leak AUC - 0.5| at layer f1, norm" in plane
    assert ">seconds<" in plane
    assert float(
        read_table(page.parent, "runs_criteo_settings")["marvell, sumkl 0.16"]["|leak AUC - 0.5|"]
    ) == pytest.approx(0.07)


def test_a_quantity_that_no_run_has_is_refused_and_the_others_are_named(tmp_path):
    write_run(tmp_path / "run")
    with pytest.raises(UserError, match=r"--y=leak_acu: no run has this quantity; they have test_auc, leak_auc, train_auc"):
        write_report([tmp_path], tmp_path / "r", Wishes(y="leak_acu"))


@pytest.mark.slow
@pytest.mark.usefixtures("without_png")
def test_an_adversary_is_named_with_its_honest_run_beside_it(tmp_path):
    for seed in range(2):
        write_run(tmp_path / f"none{seed}", seed=seed)
        write_adversarial_run(tmp_path / f"scaled{seed}", seed=seed, test_auc=0.7, norm=0.99, honest_auc=0.76 + 0.02 * seed)
    page = write_report([tmp_path], tmp_path / "report")
    text = page.read_text()
    assert "4 finished runs" in text
    assert "<b>scaled, adversary</b>: Party a deviates from the protocol. It multiplies its learning rate by 10." in text
    (row,) = read_table(page.parent, "runs_criteo_honest").values()
    assert (row["setting"], row["adversary"], row["pairs"]) == ("none, adversary scaled", "scaled", "2")
    numbers = {
        name: float(row[name])
        for name in ("test AUC", "test AUC, honest", "change of test AUC", "leak AUC at the cut, honest")
    }
    assert numbers == pytest.approx(
        {"test AUC": 0.7, "test AUC, honest": 0.77, "change of test AUC": -0.07, "leak AUC at the cut, honest": 0.9}
    )
    assert float(row["leak AUC at the cut"]) == pytest.approx(0.99)
    assert set(read_table(page.parent, "runs_criteo_headlines")) == {"none", "none, adversary scaled"}


@pytest.mark.slow
@pytest.mark.usefixtures("without_png")
def test_a_run_of_an_older_version_says_that_it_lacks_facts(tmp_path):
    write_run(tmp_path / "run", facts=None)
    page = write_report([tmp_path], tmp_path / "report")
    text = page.read_text()
    assert "<b>norm</b>: Not recorded: an older version made these runs." in text
    assert "f2 (a), not recorded: the last layer that an attacker sees" in text
    assert "1 of 1 runs were made by an older version, which does not record the cut layers" in text
    assert float(read_table(page.parent, "runs_criteo_settings")["none"]["leak AUC at the cut"]) == 0.9


@pytest.mark.usefixtures("without_png")
def test_other_kinds_of_runs_are_shown(tmp_path):
    classes = {"classes": {"accuracy": interval(0.3), "ami": interval(0.2), "macro_auc": interval(0.6)}}
    kmeans = leak("kmeans", "f2", None, message="embedding") | classes
    recovered = {"attack": "inversion", "message": "embedding", "party": "a", "layer": "f2", "visible": True, "batches": 2}
    for seed in (0, 1):
        entry = recovered | {"figures": {"hamming": interval(0.1 + 0.1 * seed), "psnr": interval(20.0)}}
        write_run(
            tmp_path / f"digits{seed}",
            seed=seed,
            dataset="digits",
            test_auc=None,
            test_accuracy=0.8,
            leaks=[kmeans],
            reconstructions=[entry],
            something_new=[{"name": "a", "size": 3 + seed, "gain": interval(0.5)}],
            facts={"skipped": {"norm": "it tells 2 classes apart"}, "unscored": {"averaging": "too few rows"}},
        )
    folder = write_report([tmp_path], tmp_path / "report").parent
    setting = read_table(folder, "runs_digits_settings")["none"]
    assert (float(setting["test accuracy"]), float(setting["adjusted mutual information at the cut"])) == (0.8, 0.2)
    recovered = read_table(folder, "runs_digits_reconstructions")["none"]
    assert (float(recovered["hamming"]), float(recovered["psnr"])) == (pytest.approx(0.15), 20.0)
    assert float(read_table(folder, "runs_digits_something_new")["none"]["size"]) == 3.5
    without = read_table(folder, "runs_digits_skipped")
    assert {name: (row["outcome"], row["why"]) for name, row in without.items()} == {
        "norm": ("skipped", "it tells 2 classes apart"),
        "averaging": ("not scored", "too few rows"),
    }


@pytest.mark.slow
@pytest.mark.usefixtures("without_png")
def test_ours_stand_beside_the_published_values(tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"a{seed}", seed=seed, experiment="bytedance_sumkl", norm=0.6, **marvell(0.64, 0.8))
        write_run(tmp_path / f"b{seed}", seed=seed, experiment="bytedance_sumkl", norm=0.99, **marvell(math.inf))
    folder = write_report([tmp_path], tmp_path / "report").parent
    table = read_table(folder, "bytedance_sumkl_criteo_published")
    row = table["leak AUC of the norm attack, sumKL 0.64"]
    assert (float(row["published"]), float(row["here"]), row["runs"]) == (0.615, pytest.approx(0.6), "3")
    assert float(row["here - published"]) == pytest.approx(-0.015)
    assert "Fashion-MNIST" in row["published for"]
    assert "9,000 training rows" in (folder / "report.html").read_text()


@pytest.mark.usefixtures("without_png")
def test_label_dp_adds_up_over_seeds_that_are_seen_together(tmp_path):
    releases = [{"defense": "label_dp", "mechanism": "randomized_response", "epsilon": 1.0, "times": 1}]
    privacy = {"epsilon": 1.0, "delta": 1e-6, "epsilon_at_delta": 1.0, "releases": releases, "epsilon_low": 0.4}
    for seed in range(3):
        write_run(tmp_path / f"{seed}", seed=seed, defense={"label_dp": {"eps": 1.0}}, privacy=privacy)
    ledger = read_table(write_report([tmp_path], tmp_path / "r").parent, "runs_criteo_ledger")["label_dp"]
    assert (float(ledger["eps of a run"]), float(ledger["eps of all seeds together"])) == (1.0, 3.0)
    assert ledger["releases of a run"] == "1 x 1.0 (label_dp, randomized_response)"


@pytest.mark.slow
@pytest.mark.parametrize(("points", "megabytes"), [(4, 2), (66, 10)])
def test_two_hundred_runs_are_less_than_ten_megabytes(tmp_path, points, megabytes):
    for index in range(points):
        for seed in range(3):
            more = marvell(0.01 * (index + 1), 0.6)
            write_run(
                tmp_path / f"{index}_{seed}", seed=seed, test_auc=0.7 + 0.001 * index, norm=0.5 + 0.005 * index, **more
            )
    write_run(tmp_path / "n0")
    write_run(tmp_path / "n1", seed=1)
    page = write_report([tmp_path], tmp_path / "report")
    assert f"{3 * points + 2} finished runs" in page.read_text()
    assert sum(file.stat().st_size for file in page.parent.rglob("*") if file.is_file()) < megabytes * 1_000_000


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(UserError, match="no run in or under it"):
        write_report([tmp_path], tmp_path / "report")
    with pytest.raises(UserError, match="no such folder"):
        write_report([tmp_path / "nowhere"], tmp_path / "report")


@pytest.mark.slow
def test_it_needs_nothing_that_trains(tmp_path):
    """The modules that train can't be imported here, nor can pyarrow."""
    code = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'hydra', 'sklearn', 'pyarrow', 'pulp'): raise ImportError(name)\n"
        "sys.meta_path.insert(0, Refuse())\n"
        "import vflbench.report.plot_figure, vflbench.report.terminal\n"
        "sys.argv = ['vflbench', 'report', sys.argv[1]]\n"
        "from vflbench.cli.main import main\n"
        "main()\n"
    )
    sweep(tmp_path, seeds=1)
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "report" / "report.html").exists()
