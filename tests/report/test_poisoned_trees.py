"""Folders of runs whose files were mutated: a report never ends in a traceback, hangs, or writes elsewhere."""

import contextlib
import faulthandler
import json
import os
import random
import shutil
import sys

import pytest
import yaml
from hostile_runs import ODD, TEXTS, deep, faults, places, replaced_by, with_value, written
from outputs_tree import interval, leak, marvell, write_adversarial_run, write_run
from volume import volume

from vflbench.cli.report import report
from vflbench.errors import UserError
from vflbench.report.terminal import final_table
from vflbench.results.runs import Run, load, read_run

MUTATIONS, IN_A_TREE = volume(1600), 20
PLACE = {
    "attack": "norm",
    "message": "gradient",
    "party": "a",
    "layer": "f2",
    "figure": "AUC",
    "value": 0.9,
    "low": 0.8,
    "high": 1.0,
}
CELLS = ("1e400", "nan", "-1", "9" * 5000, "x", "\0", '"', "0.5", "1", "train", "auc", "999999", *TEXTS)
NO_FILES = ("link", "loop", "fifo", "folder", "device", "missing")
FILES = ("summary.json", "manifest.json", "config.yaml", "metrics.csv")


def sources(root):
    """Small runs that have every part that a report reads."""
    promise = marvell(0.1, 0.5)["guarantees"]["marvell"]
    promise |= {
        "bounds": "the leak",
        "assumption": "noise",
        "assumption_holds": False,
        "tested": [{"party": "a", "layer": "f2", "gap": 3.0}],
    }
    promise |= {"exceeded": [PLACE | {"level": "messages only", "ceiling": 0.5}]}
    reading = PLACE | {"readings": 3, "own_columns": 0.6}
    verdict = {
        "worst": reading,
        "levels": {"messages only": reading},
        "on_changed": {"active": reading},
        "changed": ["gradient"],
    }
    verdict |= {"references": {"probe": PLACE, "own columns": PLACE}, "falls": PLACE | {"because": "as good as the model"}}
    release = {"defense": "marvell", "mechanism": "noise", "epsilon": 1.0, "times": 2}
    privacy = {"epsilon": 2.0, "mu": None, "delta": 1e-6, "epsilon_at_delta": 2.0, "releases": [release], "canaries": 9}
    privacy |= {"confidence": 0.95, "tried": {"norm": {}}, "epsilon_low": 0.1, "epsilon_low_by": "norm"}
    noise = {
        "party": "a",
        "layer": "f2",
        "defense": "marvell",
        "mechanism": "noise",
        "width": 3,
        "messages": 4,
        "epsilon": 1.0,
    }
    noise |= {
        "delta": 1e-6,
        "epsilon_all": 2.0,
        "delta_all": 1e-5,
        "exact": True,
        "epsilon_exact": 1.0,
        "epsilon_exact_all": 2.0,
    }
    classes = {
        "classes": {"accuracy": interval(0.3), "ami": interval(0.2), "macro_auc": interval(0.6)},
        "net": interval(0.7),
    }
    rebuilt = {"attack": "inversion", "message": "embedding", "party": "a", "layer": "f2", "visible": True, "batches": 2}
    rebuilt |= {"figures": {"recognised": interval(0.5), "mse": interval(0.1)}, "notes": {"slow": 1}}
    write_run(
        root / "rich",
        **{**marvell(0.1, 0.5), "guarantees": {"marvell": promise}},
        leaks=[
            leak("norm", "f1", 0.8),
            leak("norm", "f2", 0.9) | classes,
            leak("no_message", "features", 0.6, message="none"),
        ],
        verdict=verdict,
        privacy=privacy,
        embedding_privacy=[noise | {"reason": "a reason"}],
        distance_correlation=[{"party": "a", "layer": "f2", "visible": True, "dcor": interval(0.1)}],
        reconstructions=[rebuilt],
        figures=[{"party": "a", "layer": "f2", "message": "gradient", "figure": "flips", "value": 3}],
        another_list=[{"name": "x", "size": 3, "gain": interval(0.5)}],
        facts={"notes": ["a note"], "skipped": {"hints": "no label"}, "unscored": {"cosine": "too few"}},
    )
    manifest = json.loads((root / "rich" / "manifest.json").read_text())
    manifest["data"]["train_class_ratios"] = [0.7, 0.3]
    (root / "rich" / "manifest.json").write_text(json.dumps(manifest))
    write_adversarial_run(root / "scaled")
    audit = write_run(root / "audit", seed=None, verdict=verdict, observed_privacy={"verdict": "undecided"})
    manifest = json.loads((audit / "manifest.json").read_text())
    source = {"path": "/x/recording", "files": 3, "bytes": 100}
    (audit / "manifest.json").write_text(
        json.dumps(manifest | {"kind": "audit", "seed": 0, "source": source, "notes": ["bf16"]})
    )
    return [root / "rich", root / "scaled", root / "audit"]


def mutate(folder, rng, victim):
    """Damage one file of a run; says how."""
    name = rng.choice(FILES)
    path = folder / name
    how = rng.choice(
        ["value"] * 12 + ["bytes"] * 3 + ["deep", "cut", "link", "loop", "fifo", "folder", "device", "missing", "rows"]
    )
    if how == "value" and name != "metrics.csv":
        value = yaml.safe_load(path.read_text()) if name.endswith("yaml") else json.loads(path.read_text())
        for _ in range(rng.choice([1, 1, 3])):
            place = rng.choice(list(places(value)))
            value = with_value(value, place, rng.choice(ODD))
        with contextlib.suppress(ValueError, yaml.YAMLError):  # what can't be written at all
            path.write_bytes(written(name, value).encode(errors="surrogateescape"))
        return f"{name}: {place}"
    content = path.read_bytes()
    if how in NO_FILES:
        replaced_by(folder / rng.choice([*FILES, "error.txt", "page.html", "reconstruction.png"]), how, victim)
    elif how == "deep":
        path.write_text(deep(rng.choice([39, 45, 2000, 200_000])))
    elif how == "cut":
        path.write_bytes(content[: rng.randrange(len(content))])
    elif how == "rows" or name == "metrics.csv":
        line = ",".join(rng.choice(CELLS) for _ in range(11)).encode(errors="replace")
        (folder / "metrics.csv").write_bytes((folder / "metrics.csv").read_bytes() + line + b"\n")
    else:
        where = rng.randrange(len(content))
        path.write_bytes(content[:where] + rng.randbytes(rng.choice([1, 4])) + content[where + rng.choice([0, 1, 5]) :])
    return f"{name}: {how}"


def state(folder, without):
    """What lies there, but for the times of folders."""
    there = {path: path.lstat() for path in folder.rglob("*") if without not in (path, *path.parents)}
    return {path: path.is_dir() or (one.st_mtime_ns, one.st_size, one.st_ino) for path, one in there.items()}


@pytest.mark.filterwarnings("ignore:.* is left out")  # as `load` says of what can't be read
@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_no_mutation_ends_a_report(tmp_path, monkeypatch, capsys, part):
    """Damaged runs, 20 in a tree; each is also read alone, as a finished run is shown on the terminal."""
    monkeypatch.setattr("vflbench.report.charts.files", lambda *_: ())
    rng = random.Random(part)
    originals = sources(tmp_path / "originals")
    victim = tmp_path / "victim"
    victim.write_text("the victim's secret")
    good = tmp_path / "good"
    for seed in range(3):
        write_run(good / f"n{seed}", seed=seed, dataset="good")
        write_run(good / f"m{seed}", seed=seed, dataset="good", norm=0.6, **marvell(0.1, 0.9))
    report([str(good), "--out", str(tmp_path / "expected")])
    expected = {file.name: file.read_bytes() for file in (tmp_path / "expected" / "tables").glob("runs_good_*")}
    unshown = 0
    for number in range(MUTATIONS // IN_A_TREE // 4):
        root = tmp_path / f"tree{number}"
        shutil.copytree(good, root / "good")
        names = {}
        for place in range(IN_A_TREE):
            folder = root / "zz" / str(place)
            shutil.copytree(rng.choice(originals), folder)
            names[folder] = mutate(folder, rng, victim)
        before = state(tmp_path, root / "report")
        faulthandler.dump_traceback_later(300, exit=True, file=sys.__stderr__)  # a hang ends the test and says where
        report([str(root)])
        for folder, how in names.items():
            run = read_run(folder)
            try:
                text = final_table(folder) if isinstance(run, Run) else run.reason
            except UserError as error:
                text = str(error)
            assert text.replace("\n", "").isprintable(), how
        with contextlib.suppress(UserError):
            load(root / "zz", ["defense.marvell.sumkl"])
        faulthandler.cancel_dump_traceback_later()
        assert state(tmp_path, root / "report") == before
        page = root / "report" / "report.html"
        assert faults(page) == []
        assert "secret" not in page.read_text()
        made = {file.name: file.read_bytes() for file in (root / "report" / "tables").glob("runs_good_*")}
        assert made == expected
        unshown += page.read_text().count("it can&#39;t be shown")
        shutil.rmtree(root)
    assert capsys.readouterr().err == ""
    assert unshown == 0, "what is read must be of types that can be shown"
    assert len(os.listdir(tmp_path)) == 4
