import math
import re

import pytest
import script_runs
from outputs_tree import leak, write_run
from script_runs import rows_of

from vflbench.results.files import PAGE_MARK
from vflbench.results.report.heat_map import colour

LABEL_DP = {"_target_": "vflbench.defenses.label_dp.LabelDp", "eps": 0.753, "mechanism": "zero_sum", "debias": False}
THREATS = {
    "direct": {"level": "messages only", "text": "", "knows": ["gradients"]},
    "spectral": {"level": "messages only", "text": "", "knows": ["embeddings"]},
    "completion": {"level": "known labels", "text": "", "knows": ["embeddings"], "known_rows": 20},
}
ATTACKS = {name: {"_target_": f"vflbench.attacks.{name}.{name.title()}"} for name in THREATS}


def save(folder, seed, *, direct, completion, rows=9000, **options):
    leaks = [
        leak("direct", "f1", direct - 0.1),
        leak("direct", "f2", direct),
        leak("direct", "h1", 1.0, visible=False),
        leak("spectral", "f2", 0.3, message="embedding"),
        leak("completion", "f2", completion, message="embedding"),
        leak("completion (own columns)", "features", 0.55, message="none"),
        leak("probe", "gradients", 0.8, message="none"),
        leak("probe", "embeddings", 0.9, message="none"),
    ]
    config = {"attack": ATTACKS, "dataset": {"_target_": "vflbench.data.criteo.Criteo", "rows": rows}}
    facts = {"threats": THREATS, "cut_layers": {"a": ["f2"]}}
    return write_run(folder, seed=seed, leaks=leaks, config=config, facts=facts, **{"experiment": "matrix", **options})


def promise(ceiling, holds=None):
    return {"leak_auc_all_messages": ceiling, "assumption_holds": holds}


@pytest.fixture
def tree(tmp_path):
    for seed in (0, 1):
        save(tmp_path / f"none{seed}", seed, direct=0.98, completion=0.7 + 0.1 * seed, test_auc=0.74 + 0.02 * seed)
        guarantees = {"label_dp_zero_sum": promise(0.68)}
        defense = {"label_dp_zero_sum": LABEL_DP}
        save(tmp_path / f"dp{seed}", seed, direct=0.6, completion=0.66, defense=defense, guarantees=guarantees)
        defense = {"marvell": {"_target_": "vflbench.defenses.marvell.Marvell", "sumkl": 0.16}}
        guarantees = {"marvell": promise(0.6, holds=False)}
        save(tmp_path / f"m{seed}", seed, direct=0.95, completion=0.6, defense=defense, guarantees=guarantees)
    write_run(tmp_path / "other", experiment="cut_depth")
    return tmp_path


def test_a_line_for_each_defense_with_the_two_sided_leak_at_the_worst_visible_layer(tree):
    done = script_runs.run("matrix", tree)
    assert done.returncode == 0, done.stderr
    head, _, *rows = rows_of(done.stdout)
    assert head == [
        *("defense", "test AUC", "ceiling", "*messages only:* direct", "spectral", "*known labels:* completion"),
        *("*reference:* probe", "own columns", "*strongest:* messages only", "known labels"),
    ]
    assert rows == [  # undefended first, then what leaves most; the options are those that are not the defaults
        ["none", "0.750", "", "0.980", "0.700", "0.750", "0.900", "0.550", "`direct` 0.980", "`completion` 0.750"],
        ["marvell", "0.760", "refuted", "0.950", "0.700", "0.600", "0.900", "0.550", "`direct` 0.950", "`completion` 0.600"],
        [
            *("label_dp, eps 0.753, mechanism zero_sum", "0.760", "0.680", "0.600", "0.700", "0.660", "0.900", "0.550"),
            *("`spectral` 0.700", "`completion` 0.660"),
        ],
    ]


def test_the_page_has_colours_and_intervals_and_the_picture_is_drawn(tree, tmp_path):
    done = script_runs.run("matrix", tree, "--page", tmp_path / "m.html", "--picture", tmp_path / "m.png")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "m.html").read_text()
    assert PAGE_MARK in page[:400]
    assert f'style="background:{colour(0.98)};color:#fff" title="direct: 0.980 (2 runs: no interval)">0.980</td>' in page
    assert len(re.findall("<tr>", page)) == 2 + 3
    assert (tmp_path / "m.png").read_bytes().startswith(b"\x89PNG")
    assert script_runs.run("matrix", tree).stdout == done.stdout  # the page is no run


def test_an_attack_that_one_defense_left_no_answer_is_missing_there_only(tmp_path):
    save(tmp_path / "a", 0, direct=0.9, completion=0.7)
    save(tmp_path / "b", 0, direct=0.9, completion=None, defense={"mine": {"_target_": "mine.Mine", "secret": 3}})
    rows = {row[0]: row for row in rows_of(script_runs.run("matrix", tmp_path).stdout)}
    assert rows["mine"][5] == rows["mine"][-1] == "-"
    assert rows["none"][5] == "0.700"


def test_runs_of_other_experiments_or_of_different_data_are_an_error(tmp_path):
    write_run(tmp_path / "other" / "run")
    done = script_runs.run("matrix", tmp_path / "other")
    assert done.returncode == 2
    assert "experiment=matrix" in done.stderr
    save(tmp_path / "a", 0, direct=0.9, completion=0.7)
    save(tmp_path / "b", 1, direct=0.9, completion=0.7, rows=5000)
    done = script_runs.run("matrix", tmp_path)
    assert done.returncode == 2
    assert "options of their dataset" in done.stderr


def test_colours_run_from_white_to_dark_red():
    brightness = [sum(bytes.fromhex(colour(0.5 + 0.05 * step)[1:])) for step in range(11)]
    assert brightness == sorted(brightness, reverse=True)
    assert (colour(0.5), colour(0.4), colour(1.0)) == ("#ffffff", "#ffffff", "#a50026")
    assert colour(math.nan) not in {colour(0.5 + 0.01 * step) for step in range(51)}
