"""Levels of knowledge in a run: references beside attacks, rows of audited batches at the end of an epoch, the probe."""

import pytest
import torch
from support.audited import scripted
from support.builders import run_in

from vflbench import Gradients, Known, LocalModel, Scores
from vflbench.attacks.cosine import Cosine
from vflbench.attacks.norm import Norm
from vflbench.data.synthetic import Synthetic
from vflbench.metrics.leak import LeakTable
from vflbench.models.networks import WideDeep
from vflbench.run.grade_scores import FOLLOWED, ProbeRows
from vflbench.run.settings import Audit, Settings

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
