"""`grade` and `audit --describe` in processes of their own: without torch they answer what they would answer with it."""

import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vflbench.cli.audit_config import plan
from vflbench.cli.describe import description
from vflbench.cli.every_attack import chosen_attacks, every_attack
from vflbench.messages.batch_writer import write_batch
from vflbench.messages.score_files import ScoredRows, ScoreWriter
from vflbench.run.findings import AuditResult
from vflbench.run.scores_head import ScoresHead, ThreatRecord

ROWS = 64
_CHILD = """
import sys
from vflbench.cli.main import main
sys.argv = ["vflbench", *sys.argv[1:]]
try:
    main()
finally:
    print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules}))
"""
HEAVY = {"torch", "sklearn", "pandas", "sympy", "numba"}


def run(*arguments, cwd):
    """What the command printed, and the top packages that its process had loaded at the end."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    printed, _, loaded = done.stdout.rpartition("LOADED")
    return printed, set(loaded.split())


def write_scores(folder, rng):
    folder.mkdir()
    record = ThreatRecord("non-label party", ["gradients"], 0, 0, False, "messages only", "gradient", "somebody")
    ScoresHead(2, 1, {"norm": record}, {"a": ["f1"]}, {"a": ["f1"]}, {}, ["norm"], rows=2 * ROWS).write(folder)
    writer = ScoreWriter(folder)
    for part in range(2):
        ids = np.arange(part * ROWS, (part + 1) * ROWS)
        scores = rng.integers(0, 9, ROWS).astype(np.float32)
        writer.add(ScoredRows(0, ("norm", "gradient", "a", "f1", True), ids, np.zeros(ROWS, np.bool_), scores))
    writer.close()
    return pa.table({"id": np.arange(2 * ROWS), "label": rng.integers(0, 2, 2 * ROWS)})


def test_grade_loads_no_torch(tmp_path):
    pq.write_table(write_scores(tmp_path / "scores", np.random.default_rng(0)), tmp_path / "labels.parquet")
    printed, loaded = run("grade", "scores", "labels.parquet", "--out", "graded", cwd=tmp_path)
    assert "norm" in printed
    assert not loaded & (HEAVY | {"hydra", "omegaconf"})
    assert json.loads((tmp_path / "graded" / "summary.json").read_text())["leaks"][0]["batches"] == 2


@pytest.fixture
def recording(tmp_path):
    """As another program writes it: embeddings and gradients of two layers in one epoch, and labels."""
    rng = torch.Generator().manual_seed(0)
    for step in range(3):
        values = {f"f{layer}": torch.randn(ROWS, 8, generator=rng) for layer in (1, 2)}
        write_batch(
            tmp_path / "r",
            ids=torch.arange(ROWS) + ROWS * step,
            embeddings=values,
            gradients=values,
            party="a",
            y=torch.randint(2, (ROWS,), generator=rng),
            epoch=0,
            step=step,
        )
    return tmp_path / "r"


@pytest.mark.slow
def test_a_description_loads_neither_torch_nor_hydra_and_says_the_same(recording, tmp_path):
    printed, loaded = run("audit", "r", "--describe", cwd=tmp_path)
    assert not loaded & (HEAVY | {"hydra", "omegaconf", "scipy", "altair", "vl_convert", "PIL"})
    composed = plan(recording, [], [])
    assert printed.strip() == description(recording, composed.attacks, composed.unusable).strip()
    assert "attacks that can run" in printed


@pytest.mark.slow
def test_named_attacks_are_described_without_hydra(recording, tmp_path):
    printed, loaded = run("audit", "r", "attack=[norm,spectral]", "--describe", cwd=tmp_path)
    assert not loaded & (HEAVY | {"hydra", "omegaconf", "scipy", "altair", "vl_convert", "PIL"})
    composed = plan(recording, ["attack=[norm,spectral]"], [])
    assert printed.strip() == description(recording, composed.attacks, composed.unusable).strip()


@pytest.mark.parametrize(
    "word",
    [
        *("attack=none", "attack=strongest", "attack=nrom", "attack=[]", "attack=[norm,norm]", "attack=[norm,none]"),
        *(
            "attack=../attack/norm",
            "attack=null",
            "+attack=norm",
            "attack.norm.top=prior",
            "seed=1",
            "attack=[norm, cosine]",
        ),
    ],
)
def test_what_is_no_plain_choice_is_left_to_hydra(word):
    assert chosen_attacks([word]) is None
    assert chosen_attacks(["attack=norm", word]) is None


def test_every_attack_is_that_of_the_composed_options(recording):
    """With the same classes, options and threats: a config that is only read must not be one that Hydra reads otherwise."""
    attacks, unusable = every_attack()
    composed = plan(recording, [], [])
    assert (list(attacks), unusable) == (list(composed.attacks), composed.unusable)
    for name, attack in composed.attacks.items():
        assert type(attacks[name]) is type(attack)
        options = attack.__dataclass_fields__
        assert {key: repr(getattr(attacks[name], key)) for key in options} == {
            key: repr(getattr(attack, key)) for key in options
        }
        assert attacks[name].threat.record() == attack.threat.record()


@pytest.mark.parametrize("text", ["k: 1e-3", "k: ${seed}", "k: ???", "k: 'yes'", "k: 07", "k: '1'"])
def test_a_config_that_needs_more_than_to_be_read_is_left_to_hydra(text, tmp_path, monkeypatch):
    """PyYAML takes 1e-3 for text, and OmegaConf for a number."""
    (tmp_path / "attack").mkdir()
    (tmp_path / "attack" / "norm.yaml").write_text(f"norm:\n  _target_: vflbench.attacks.norm.Norm\n  {text}\n")
    monkeypatch.setattr("vflbench.cli.every_attack.config_folder", lambda: tmp_path)
    assert (every_attack() is None) == (text != "k: 07")


def test_the_public_result_is_where_it_was():
    import vflbench

    assert vflbench.AuditResult is AuditResult
