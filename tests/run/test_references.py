import math
import shutil

import numpy as np
import pytest
import torch
from support.audited import Audited, clicks, scripted
from support.builders import every_attack, run_in
from support.picture_files import write_idx, write_mnist

from vflbench import Gradients, Known, LocalModel, Scores
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.norm import Norm
from vflbench.data.pictures import Digits, Mnist
from vflbench.data.synthetic import Synthetic
from vflbench.errors import UserError
from vflbench.metrics.leak import LeakTable
from vflbench.models.networks import WideDeep
from vflbench.run import attackers
from vflbench.run.grade_scores import FOLLOWED, ProbeRows
from vflbench.run.settings import Audit, Settings


def insider(known_rows, kept):
    """An attack that answers with what it knows: right for known rows, 0 for others. kept: what it was shown."""

    def answer(view):
        known = view[Known]
        kept.append((view.step, view.ids, known))
        scores = torch.zeros(len(view.ids))
        for name, label in zip(known.ids.tolist(), known.labels.tolist(), strict=True):
            scores[view.ids == name] = 2.0 * label - 1
        return Scores(view.ids, {"at the end" if view.step is None else "in batches": scores})

    return scripted(Gradients, max_classes=math.inf, threat={"known_rows": known_rows}, batch=answer, epoch=answer)


def test_known_rows_of_a_batch_are_drawn_among_those_that_qualify(rng):
    labels = torch.randint(4, (200,), generator=rng)
    drawn = [attackers.draw_one_of_each(labels, 4, rng) for _ in range(50)]
    assert all(labels[places].tolist() == [0, 1, 2, 3] for places in drawn)
    assert len({tuple(places.tolist()) for places in drawn}) > 45
    assert attackers.draw_one_of_each(labels, 5, rng).tolist() == []
    canary = torch.arange(200) % 2 == 0
    positives = attackers.draw_positives(labels, canary, 1000, rng)
    assert sorted(positives.tolist()) == ((labels != 0) & ~canary).nonzero()[:, 0].tolist()
    assert len(attackers.draw_positives(labels, canary, 3, rng)) == 3


def test_known_rows_stay_the_same_are_never_scored_and_change_no_score_of_others():
    few, many, rounds = [], [], {"epochs": 2, "steps": 6, "canaries": 200}
    hinted, insiders = every_attack("hints", "averaging"), {"few": insider(20, few), "many": insider(100, many)}
    audited, alone = (Audited(clicks(), attacks, **rounds) for attacks in (insiders | hinted, hinted))
    for kept, count in ((few, 20), (many, 100)):
        known = kept[0][2]
        assert len(kept) == 2 * 6 + 2
        assert all(torch.equal(known.ids, one.ids) and torch.equal(known.labels, one.labels) for _, _, one in kept)
        assert len(known.ids.unique()) == count
        assert torch.equal(known.labels, audited.labels(known.ids))
        assert set(known.labels.tolist()) == {0, 1}
        assert not audited.canaries.find(audited.ids(known.ids))[0].any()
        met = torch.cat([ids for step, ids, _ in kept if step is not None])
        assert torch.isin(known.ids, met).any(), "some of them are in the rounds, or the test shows nothing"
    assert torch.equal(few[0][2].ids, many[0][2].ids[:20])
    # It is right about each row that it knows and silent about others: were one of those scored, it would show.
    of_insiders = [leak for leak in audited.leaks if leak.attack not in hinted]
    assert {(leak.layer, leak.raw.mean, leak.estimates["auc"][0].error) for leak in of_insiders} == {
        ("in batches", 0.5, 0.0),
        ("at the end", 0.5, 0.0),
    }
    assert [leak.raw for leak in audited.leaks if leak.attack in hinted] == [leak.raw for leak in alone.leaks]


def test_few_known_rows_show_every_class():
    data = Digits().load(torch.Generator().manual_seed(0))
    nobody = attackers.draw_canaries(data.train, 0, torch.Generator())
    for seed in range(20):
        known = attackers.draw_known(data.train, 30, torch.Generator().manual_seed(seed), nobody)
        assert known.labels[:10].tolist() == list(range(10))
        assert len(known.ids[:30].unique()) == 30
        assert torch.equal(known.labels, data.aligned().labels(known.ids))
        assert int(known.among(data.train.all().ids, 10).sum()) == 10
    data = Synthetic(rows=8000, vocabulary=300).load(torch.Generator().manual_seed(0))
    few, many = (attackers.draw_known(data.train, most, torch.Generator().manual_seed(0), nobody).ids for most in (20, 100))
    assert torch.equal(few[:20], many[:20]), "what another attack knows changes which rows an attack knows"


# Levels of knowledge in a run: references beside attacks, rows of audited batches at the end of an epoch, the probe.


SMALL = {"dataset": Synthetic(rows=3000, vocabulary=300), "model": WideDeep(bottom_layers=2, top_layers=1, width=16)}


def parts(**changes):
    audit = Audit(batches=4, **changes)
    return {**SMALL, "settings": Settings(epochs=2, batch_size=128, audit=audit)}


def test_an_attack_that_collects_is_asked_about_the_rows_of_audited_batches(tmp_path):
    kept = []

    def observe(view):
        kept.append([view.ids, view[Gradients].layers["f2"].norm(dim=1)])

    def epoch(view):
        ids, scores = (torch.cat(parts) for parts in zip(*kept, strict=True))
        kept.clear()
        assert torch.equal(view.ids[: len(ids)], ids)  # rows of audited batches come first
        assert len(view.ids) == len(view.ids.unique()) == 2700  # and the others follow, as there are fewer than 20,000
        return Scores(ids, {"f2": scores})

    collector = scripted(Gradients, observe=observe, epoch=epoch)
    summary = run_in(tmp_path, attacks={"norm": Norm(), "collector": collector}, **parts(probe=False))
    means = {leak["attack"]: leak["raw"]["mean"] for leak in summary["leaks"] if leak["layer"] == "f2"}
    assert means["collector"] == pytest.approx(means["norm"], abs=0.02)  # the same scores in other groups


def test_an_attack_that_follows_ten_rows_also_sees_the_twenty_whose_label_it_knows(tmp_path):
    seen = set()

    def epoch(view):
        assert set(view[Known].ids.tolist()) <= seen
        assert set(view.ids.tolist()) <= seen
        return Scores(view.ids, {"f2": torch.rand(len(view.ids), generator=view.rng)})

    threat = {"known_rows": 20}
    knows = scripted(Gradients, Known, threat=threat, follows=10, observe=lambda v: seen.update(v.ids.tolist()), epoch=epoch)
    run_in(tmp_path, attacks={"knows": knows}, **parts(probe=False))
    assert 28 <= len(seen) <= 30  # some rows are left over in both epochs


def head(view):
    """The difference of the means of known rows, in its own network."""
    known, embed = view[Known], view[LocalModel].embed
    layers = {}
    for layer, h in embed(known.ids).items():
        layers[layer] = embed(view.ids)[layer] @ (h[known.labels == 1].mean(0) - h[known.labels == 0].mean(0))
    return Scores(view.ids, layers)


@pytest.mark.slow
def test_beside_an_attack_with_labels_stands_the_same_attack_on_own_columns(tmp_path):
    attacks = {"norm": Norm(), "cosine": Cosine(), "head": scripted(LocalModel, threat={"known_rows": 200}, epoch=head)}
    summary = run_in(tmp_path, attacks=attacks, **parts())
    probes = {leak["layer"]: leak["raw"]["mean"] for leak in summary["leaks"] if leak["attack"] == "probe"}
    assert set(probes) == {"embeddings", "gradients", "messages"}
    worst = max(leak["two_sided"]["mean"] for leak in summary["leaks"] if leak["message"] == "gradient")
    assert min(probes["gradients"], probes["messages"]) > worst - 0.03  # no attack reads more than it
    by_name = {(leak["attack"], leak["message"], leak["layer"]) for leak in summary["leaks"]}
    references = {key for key in by_name if "own columns" in key[0]}
    assert references == {(f"{name} (own columns)", "none", "features") for name in ("cosine", "head")}


def test_the_probe_of_followed_rows_hears_an_attack_that_follows_fewer_than_others(rng):
    y = (torch.rand(4000, generator=rng) < 0.3).long()
    rows, table = ProbeRows(), LeakTable()
    for name, count, noise in (("says nothing", 4000, 1e6), ("reads the label", 400, 0.1)):
        scores = y[:count] + noise * torch.randn(count, generator=rng)
        rows.add_followed(("a", "gradient", name), torch.arange(count), y[:count], scores, torch.zeros(count).bool())
    rows.grade(2, rng, table)
    (leak,) = table.leaks()
    assert leak.layer == FOLLOWED
    assert leak.two_sided.mean > 0.99


# Auxiliary rows: never those that are trained on or graded; from another source where asked to.


def seeded():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def run(tmp_path):
    """A run on 50 of 60 rows in the folder `mine`: the dataset, and training rows."""
    write_mnist(tmp_path / "mine", seed=1)
    dataset = Mnist(path=str(tmp_path / "mine"), rows=50)
    return dataset, dataset.load(seeded()).train


def rows_at(path, run):
    return attackers.rows_of_another_source(run[0], str(path), run[1], seeded())


def test_rows_of_another_folder_are_read_by_the_same_loader_and_encoded_alike(tmp_path, run):
    pixels, labels = write_mnist(tmp_path / "other", rows=70, seed=2)
    others = rows_at(tmp_path / "other", run)
    assert len(others) == 70
    drawn = attackers.auxiliary_rows(others, 70, 0)
    assert drawn.columns["a"].numeric.shape == (70, 100)
    expected = torch.as_tensor(pixels).flatten(1).float() / 255
    place = torch.cdist(drawn.columns["a"].numeric, expected).argmin(dim=1)
    torch.testing.assert_close(drawn.columns["a"].numeric, expected[place])
    assert drawn.labels.tolist() == [int(labels[row]) for row in place]
    assert place.tolist() != sorted(place.tolist())


def test_rows_of_the_run_among_others_are_left_out(tmp_path, run):
    """Wherever they stand in the file: an attacker must not hold rows that it is graded on."""
    both = zip(write_mnist(tmp_path / "mixed", rows=90, seed=2), write_mnist(tmp_path / "mine", seed=1), strict=True)
    for name, parts in zip(("images-idx3", "labels-idx1"), both, strict=True):
        write_idx(tmp_path / "mixed" / f"t10k-{name}-ubyte", np.concatenate(parts))
    others = rows_at(tmp_path / "mixed", run)
    drawn = attackers.auxiliary_rows(others, 1000, 0)
    trained = {row.numpy().tobytes() for row in run[1].all().features["a"].numeric}
    assert len(drawn.labels) == len(others) == 100  # and ten that the run does not read
    assert not any(row.numpy().tobytes() in trained for row in drawn.columns["a"].numeric)


def test_rows_of_the_run_other_columns_and_a_source_that_is_not_there_are_refused(tmp_path, run):
    shutil.copytree(tmp_path / "mine", tmp_path / "copy")
    write_mnist(tmp_path / "other", side=12, seed=2)
    problems = {"mine": "rows of the run itself", "copy": "rows of the run itself", "other": "the dataset's columns"}
    for source, problem in (problems | {"nowhere": "it can't be read"}).items():
        with pytest.raises(UserError, match=f"audit.auxiliary_path.*{problem}"):
            rows_at(tmp_path / source, run)
    with pytest.raises(UserError, match="reads no path"):
        rows_at(tmp_path, (Digits(), run[1]))
