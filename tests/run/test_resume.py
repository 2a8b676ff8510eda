"""A run that was stopped anywhere ends with the bytes of one that never was."""

import json
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from builders import TappedWire, run_in
from damaged_checkpoints import DAMAGE, changed, places

from vflbench.attacks.attribute import Attribute
from vflbench.attacks.averaging import Averaging
from vflbench.attacks.base import Attack, Scores
from vflbench.attacks.kmeans import Kmeans
from vflbench.attacks.no_message import NoMessage
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.base import LabelDefense, NonLabelDefense
from vflbench.defenses.binomial import Binomial
from vflbench.defenses.embedding_noise import EmbeddingNoise
from vflbench.defenses.label_dp import LabelDp
from vflbench.defenses.marvell import Marvell
from vflbench.defenses.max_norm import MaxNorm
from vflbench.defenses.mid import Mid
from vflbench.defenses.nopeek import Nopeek
from vflbench.defenses.pe_loss import PeLoss
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.top_k import TopK
from vflbench.defenses.vector_quantize import VectorQuantize
from vflbench.engines.local import Local
from vflbench.errors import UserError
from vflbench.messages.facts import Gradients
from vflbench.messages.threat import Threat
from vflbench.models.wide_deep import WideDeep
from vflbench.options import options
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.interruption import Interrupted
from vflbench.run.settings import Audit, Settings

EPOCHS, BATCH, MESSAGES = 3, 64, 4  # messages a step: two parties, up and down
STEPS = {400: 5, 800: 11}  # batches an epoch, by rows of the file


def epoch_of(rows: int) -> int:
    """Messages of an epoch: its batches, and two predictions by two parties."""
    return STEPS[rows] * MESSAGES + 2 * 2


EPOCH = epoch_of(400)


class Memory(NonLabelDefense, LabelDefense):
    """Everything it does depends on all that it has seen and drawn."""

    def __init__(self):
        self.sum, self.calls = None, {"gradient": 0, "labels": 0}

    def embedding(self, h, context):
        self.calls["embedding"] = self.calls.get("embedding", 0) + 1
        return h * (1 + 0.001 * self.calls["embedding"]) + 0.01 * torch.randn(h.shape, generator=context.rng)

    def labels(self, y, logits, context):
        self.calls["labels"] += 1
        return torch.where(torch.rand(len(y), generator=context.rng) < 0.001 * self.calls["labels"], 1 - y, y)

    def penalty(self, embeddings, y):
        return 0.01 * self.calls["labels"] * embeddings[0].square().mean()

    def gradient(self, g, y, context):
        self.sum = g.mean(0) if self.sum is None else self.sum + g.mean(0)
        return g + 0.1 * self.sum


class Grudge(Attack):
    """Scores by a direction that it turns with each batch it sees."""

    threat = Threat(knows={Gradients})

    def batch(self, view):
        scores = {}
        for layer, g in view[Gradients].layers.items():
            kept = vars(self).setdefault("kept", {})
            kept[layer] = kept.get(layer, 0) + g.mean(0) + 1e-4 * torch.randn(g.shape[1], generator=view.rng)
            scores[layer] = g @ kept[layer]
        return Scores(view.ids, scores)


class CrashError(BaseException):
    """Stands for a process that is gone: nothing more is written."""


@options
class Tripwire(Local):
    """Calls `trip` when the message of number `at` crosses."""

    at: int = -1
    trip: object = None

    def wire(self):
        return TappedWire(self.carried)

    def carried(self, message):
        self.crossed = getattr(self, "crossed", -1) + 1
        if self.crossed == self.at:
            self.trip()


def crash():
    raise CrashError


def ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def parts(rows: int = 400, **changes: Any) -> dict[str, Any]:
    """A run of tenths of a second whose defense and attacks remember."""
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "audit": Audit(batches=2, probe=False), **changes.pop("settings", {})}
    return {
        "dataset": Synthetic(rows=rows, vocabulary=100, parties={"a": ["I*"], "b": ["C1*"], "label": ["C2*"]}),
        "model": WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True),
        "defenses": {"max_norm": MaxNorm(), "memory": Memory()},
        "attacks": {"norm": Norm(), "grudge": Grudge(), "averaging": Averaging(rows=50)},
        "settings": Settings(**settings),
        **changes,
    }


def everything(**changes: Any) -> dict[str, Any]:
    """A run with more defenses, attacks and figures."""
    return parts(
        rows=800,
        **{
            "defenses": {"max_norm": MaxNorm(), "marvell": Marvell(), "memory": Memory()},
            "attacks": {
                "norm": Norm(),
                "spectral": Spectral(),
                "grudge": Grudge(),
                "averaging": Averaging(rows=100),
                "kmeans": Kmeans(message="gradients", map="hints"),
                "no_message": NoMessage(),
            },
            "settings": {"audit": Audit(batches=4, dcor=True)},
            **changes,
        },
    )


def results(folder: Path) -> tuple[list[bytes], dict[str, Any]]:
    """All that must not depend on where a run was stopped."""
    lines = [line for line in (folder / "metrics.csv").read_bytes().splitlines() if b"seconds," not in line]
    summary = json.loads((folder / "summary.json").read_text())
    del summary["seconds"], summary["cpu_seconds"]
    return lines, summary


def uninterrupted(folder: Path, run: dict[str, Any]) -> tuple[list[bytes], dict[str, Any]]:
    run_in(folder, **run)
    expected = results(folder)
    assert sum(b",messages_sent," in line for line in expected[0]) == EPOCHS * (4 + 2 * 2)
    assert not (folder / "checkpoint.pt").exists()
    return expected


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of `parts` that nothing stopped."""
    return uninterrupted(tmp_path_factory.mktemp("whole"), parts())


@pytest.fixture(scope="module")
def whole_of_everything(tmp_path_factory):
    return uninterrupted(tmp_path_factory.mktemp("everything"), everything())


def stopped(folder: Path, trip: Callable, at: int, error: type[BaseException], run: Callable = parts, **changes: Any):
    with pytest.raises(error) as caught:
        run_in(folder, **run(engine=Tripwire(at=at, trip=trip), **changes))
    assert not (folder / "summary.json").exists()
    return caught.value


@pytest.fixture(scope="module")
def crash_of_parts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crashed")
    stopped(folder, crash, EPOCH + 5, CrashError)
    return folder


@pytest.fixture
def crashed(crash_of_parts, tmp_path):
    """A folder in which `parts` crashed in epoch 1."""
    return shutil.copytree(crash_of_parts, tmp_path, dirs_exist_ok=True)


def moments(rows: int) -> dict[str, int]:
    """Numbers of messages, by what happens then."""
    epoch, steps = epoch_of(rows), STEPS[rows] * MESSAGES
    return {
        "at the first message": 0,
        "in epoch 0": steps // 2,
        "while epoch 0 predicts": epoch - 3,
        "at the first message of epoch 1": epoch,
        "in the middle of epoch 1": epoch + steps // 2,
        "at the last message of epoch 2": 2 * epoch + steps - 1,
        "at the very last": 3 * epoch - 1,
    }


def crash_and_go_on(folder: Path, at: int, rows: int, run: Callable, expected: Any) -> None:
    stopped(folder, crash, at, CrashError, run)
    run_in(folder, **run())
    assert results(folder) == expected, at
    place = at // epoch_of(rows)
    line = f"going on before epoch {place}\n" if place else "left nothing to go on from"
    assert line in (folder / "train.log").read_text(), at


def interrupt_and_go_on(folder: Path, at: int, rows: int, run: Callable, expected: Any) -> None:
    error = stopped(folder, ctrl_c, at, Interrupted, run)
    epoch, message = divmod(at, epoch_of(rows))
    in_steps = message < STEPS[rows] * MESSAGES
    place = f"epoch {epoch}, step {message // MESSAGES + 1}" if in_steps else f"epoch {epoch + 1}"
    assert f"stopped before {place}, and saved; the same command goes on from there ({folder})" == str(error)
    run_in(folder, **run())
    assert results(folder) == expected, at
    assert f"going on before {place}\n" in (folder / "train.log").read_text()
    assert [r["place"] for r in json.loads((folder / "manifest.json").read_text())["resumed"]] == [place]


@pytest.mark.slow
def test_what_a_crash_loses_is_computed_again_to_the_same_bytes(tmp_path, whole):
    for name in ("in epoch 0", "in the middle of epoch 1", "at the very last"):
        crash_and_go_on(tmp_path / name, moments(400)[name], 400, parts, whole)


@pytest.mark.slow
def test_ctrl_c_loses_nothing_and_goes_on_after_that_very_batch(tmp_path, whole):
    for name in ("at the first message", "while epoch 0 predicts", "in the middle of epoch 1"):
        interrupt_and_go_on(tmp_path / name, moments(400)[name], 400, parts, whole)


@pytest.mark.slow
@pytest.mark.parametrize("stop_and_go_on", [crash_and_go_on, interrupt_and_go_on])
def test_with_every_kind_of_defense_and_attack_at_every_moment(tmp_path, whole_of_everything, stop_and_go_on):
    for name, at in moments(800).items():
        stop_and_go_on(tmp_path / name, at, 800, everything, whole_of_everything)


@pytest.mark.slow
def test_with_every_kind_of_defense_and_attack_when_stopped_at_every_turn(tmp_path, whole_of_everything):
    turns = [(7, ctrl_c, Interrupted), (30, ctrl_c, Interrupted), (40, crash, CrashError)]
    for at, trip, error in (*turns * 2, turns[0]):
        stopped(tmp_path, trip, at, error, everything)
    run_in(tmp_path, **everything())
    assert results(tmp_path) == whole_of_everything


@pytest.mark.slow
def test_a_run_that_is_stopped_at_every_turn_still_ends_with_the_same_bytes(tmp_path, whole):
    for at, trip, error in ((7, ctrl_c, Interrupted), (15, ctrl_c, Interrupted), (16, crash, CrashError)) * 2:
        stopped(tmp_path, trip, at, error)
    run_in(tmp_path, **parts())
    assert results(tmp_path) == whole


@pytest.mark.slow
def test_rows_that_no_checkpoint_knows_are_written_once(tmp_path, whole, monkeypatch):
    """Killed after metrics.csv got its rows and before the checkpoint did."""
    saves = []

    def save(self, state, real=Checkpoint.save):
        saves.append(state)
        return real(self, state) if len(saves) < 2 else crash()

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", save)
        with pytest.raises(CrashError):
            run_in(tmp_path, **parts())
    assert b"\n1,test," in (tmp_path / "metrics.csv").read_bytes()
    run_in(tmp_path, **parts())
    assert results(tmp_path) == whole


@pytest.mark.slow
def test_a_torn_last_line_is_cut_off(crashed, whole):
    with (crashed / "metrics.csv").open("a") as file:
        file.write("1,train,,,,,loss,0.12")
    run_in(crashed, **parts())
    assert results(crashed) == whole


QUICK = ("a bit flipped", "a pickle that acts, in the right file")


def printed(capsys):
    """What was printed, without the breaks of its lines."""
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    "damage",
    [
        *[pytest.param(damage, marks=pytest.mark.slow) for name, damage in DAMAGE.items() if name not in QUICK],
        *[DAMAGE[name] for name in QUICK],
        lambda path: torch.save({k: torch.load(path)[k] for k in ("format", "data", "device")}, path),
        lambda path: (path.parent / "metrics.csv").write_text("epoch\n"),
    ],
    ids=[*sorted(DAMAGE.keys() - QUICK), *QUICK, "without anything", "metrics.csv cut"],
)
def test_a_checkpoint_that_can_not_be_used_costs_the_epochs_but_not_the_run(crashed, whole, monkeypatch, damage, capsys):
    monkeypatch.chdir(crashed)
    damage(crashed / "checkpoint.pt")
    run_in(crashed, **parts())
    assert "starting from the beginning" in printed(capsys)
    assert results(crashed) == whole
    assert not (crashed / "executed").exists()


@pytest.mark.slow
def test_a_state_that_fits_only_in_part_leaves_nothing_half_restored(crashed, whole, capsys):
    state = torch.load(crashed / "checkpoint.pt", weights_only=True)
    del state["session"]["label"]["network"]["top.output.weight"]
    torch.save(state, crashed / "checkpoint.pt")
    run_in(crashed, **parts())
    assert "does not fit this run" in printed(capsys)
    assert results(crashed) == whole


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("epoch", "number"), 10**6),
        (("metrics_bytes",), -5),
        (("metrics_bytes",), 100),
        (("results",), []),
    ],
    ids=str,
)
def test_a_state_that_contradicts_itself_is_not_gone_on_with(tmp_path, whole, place, value, capsys):
    stopped(tmp_path, ctrl_c, EPOCH + 5, Interrupted)
    state = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    torch.save(changed(state, place, value), tmp_path / "checkpoint.pt")
    run_in(tmp_path, **parts())
    assert "starting from the beginning" in printed(capsys)
    assert results(tmp_path) == whole


@pytest.mark.slow
def test_odd_values_anywhere_in_a_state_are_refused_or_gone_on_with_and_never_a_fault(crashed):
    """A checkpoint is trusted for its numbers, as nobody could tell them from others, and for nothing else."""
    odd = [None, True, -1, 2**40, -0.5, float("nan"), 1e300, "", "x" * 1000, [], {}, [[]], {"a": 1}, torch.zeros(0)]
    odd += [torch.zeros(3, 5), torch.full((2,), torch.inf), torch.zeros(2, dtype=torch.int64), {0: 1, "b": None}]
    state = torch.load(crashed / "checkpoint.pt", weights_only=True)
    rng = random.Random(0)
    all_places = list(places(state))
    refused = 0
    for number in range(60):
        folder = crashed / str(number)
        shutil.copytree(crashed, folder, ignore=lambda _, names: [name for name in names if name.isdigit()])
        place, value = rng.choice(all_places), rng.choice(odd)
        torch.save(changed(state, place, value), folder / "checkpoint.pt")
        try:
            run_in(folder, **parts())
        except UserError:
            refused += 1
        except Exception as error:
            raise AssertionError(f"{place} = {value!r:.100}") from error
        shutil.rmtree(folder)
    assert refused < 12


def test_data_that_has_changed_is_not_gone_on_with(crashed):
    before = {file.name: file.read_bytes() for file in crashed.iterdir()}
    changed = Synthetic(rows=810, vocabulary=100, parties={"a": ["I*"], "b": ["C1*"], "label": ["C2*"]})
    with pytest.raises(UserError, match="dataset: the data is no longer what this run was trained on"):
        run_in(crashed, **parts(dataset=changed))
    assert {file.name: file.read_bytes() for file in crashed.iterdir()} == before


def test_another_device_is_not_gone_on_with(crashed):
    state = torch.load(crashed / "checkpoint.pt", weights_only=True)
    torch.save({**state, "device": "cuda"}, crashed / "checkpoint.pt")
    with pytest.raises(UserError, match="device=cpu: this run was begun on cuda"):
        run_in(crashed, **parts())


@pytest.mark.slow
def test_other_versions_are_reported_and_gone_on_with(crashed, whole, capsys):
    manifest = json.loads((crashed / "manifest.json").read_text())
    (crashed / "manifest.json").write_text(json.dumps({**manifest, "versions": {"torch": "0.0.1"}}))
    run_in(crashed, **parts())
    assert "its numbers may differ: torch 0.0.1 then, None now" in printed(capsys)
    assert results(crashed) == whole


@pytest.mark.slow
def test_a_run_that_diverges_does_so_again_the_same_way(tmp_path):
    class Cliff(LabelDefense):
        calls = 0

        def penalty(self, embeddings, y):
            self.calls += 1
            return float("inf") if self.calls == STEPS[400] + 4 else 0.0

    messages = []
    for _ in range(2):
        with pytest.raises(UserError, match="the loss became inf at epoch 1, step 3") as error:
            run_in(tmp_path, **parts(defenses={"cliff": Cliff()}))
        messages.append(str(error.value))
        assert (tmp_path / "checkpoint.pt").exists()
    assert messages[0] == messages[1]
    assert "going on before epoch 1" in (tmp_path / "train.log").read_text()


@pytest.mark.slow
def test_overwrite_begins_anew_and_an_interrupted_one_goes_on_without_it(tmp_path, whole):
    run_in(tmp_path, **parts())
    error = stopped(tmp_path, ctrl_c, EPOCH + 5, Interrupted, settings={"overwrite": True})
    assert "the same command without overwrite=true goes on" in str(error)
    run_in(tmp_path, **parts())
    assert "going on before epoch 1, step 2" in (tmp_path / "train.log").read_text()
    assert results(tmp_path) == whole


@pytest.mark.slow
def test_without_a_checkpoint_a_run_that_was_stopped_begins_again(tmp_path, whole):
    error = stopped(tmp_path, ctrl_c, EPOCH + 5, Interrupted, settings={"checkpoint": "none"})
    assert "saves nothing" in str(error)
    assert not (tmp_path / "checkpoint.pt").exists()
    run_in(tmp_path, **parts(settings={"checkpoint": "keep"}))
    assert results(tmp_path) == whole
    assert len(Checkpoint(tmp_path).load()["results"]) == EPOCHS


@pytest.mark.slow
def test_a_component_that_keeps_what_no_checkpoint_holds_is_reported_and_trained_all_the_same(tmp_path, capsys):
    class Hoarder(NonLabelDefense):
        def __init__(self):
            self.seen = {1, 2}

    run_in(tmp_path, **parts(defenses={"hoarder": Hoarder()}))
    lines = printed(capsys)
    assert lines.count("this run can't go on if it stops: no checkpoint can hold session.parties.a.defenses") == 1
    assert ".seen: set" in lines


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", ["randomized_response", "lp_2st"])
@pytest.mark.parametrize(("at", "trip", "error"), [(EPOCH + 7, ctrl_c, Interrupted), (2 * EPOCH + 5, crash, CrashError)])
def test_a_label_that_was_randomized_stays_so_when_the_run_goes_on(tmp_path, monkeypatch, mechanism, at, trip, error):
    released: dict[int, set[int]] = {}

    def labels(self, y, logits, context, real=LabelDp.labels):
        noisy = real(self, y, logits, context)
        for row, label in zip(context.ids.tolist(), noisy.tolist(), strict=True):
            released.setdefault(row, set()).add(label)
        return noisy

    def defended():
        return parts(defenses={"label_dp": LabelDp(mechanism=mechanism), "max_norm": MaxNorm()}, attacks={})

    run_in(tmp_path / "whole", **defended())
    monkeypatch.setattr(LabelDp, "labels", labels)
    with pytest.raises(error):
        run_in(tmp_path / "run", **defended() | {"engine": Tripwire(at=at, trip=trip)})
    run_in(tmp_path / "run", **defended())
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    assert len(released) > 340
    assert all(len(seen) == 1 for seen in released.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [("top_k", "quantize", "binomial"), ("embedding_noise", "vector_quantize"), ("nopeek", "row_noise"), ("row_message",)],
)
def test_learned_ranges_and_codebooks_go_on_as_they_were(tmp_path, names):
    made = {
        "top_k": TopK(fraction=0.5),
        "quantize": Quantize(learn_batches=STEPS[400] + 3),
        "binomial": Binomial(n=8, biased=True),
        "embedding_noise": EmbeddingNoise(eps=50.0),
        "vector_quantize": VectorQuantize(words=4, learn_batches=STEPS[400] + 3),
        "nopeek": Nopeek(warmup=20),
        "row_noise": EmbeddingNoise(eps=50.0, memoise="noise"),
        "row_message": EmbeddingNoise(mechanism="laplace", eps=50.0, memoise="message"),
    }
    attacks = {"no_message": NoMessage(), "attribute": Attribute(known=50, rows=200)}
    changes = {"defenses": {name: made[name] for name in names}, "attacks": attacks}
    run_in(tmp_path / "whole", **parts(**changes))
    for at, trip, error in ((15, ctrl_c, Interrupted), (EPOCH + 12, crash, CrashError)):
        stopped(tmp_path / "run", trip, at, error, **changes)
    run_in(tmp_path / "run", **parts(**changes))
    assert results(tmp_path / "run") == results(tmp_path / "whole")


@pytest.mark.slow
def test_the_noise_of_a_bottleneck_and_the_energy_of_an_epoch_go_on_as_they_were(tmp_path):
    changes = {"defenses": {"mid": Mid(beta=0.1, width=4), "pe_loss": PeLoss()}, "attacks": {"norm": Norm()}}
    run_in(tmp_path / "whole", **parts(**changes))
    for at, trip, error in ((15, ctrl_c, Interrupted), (EPOCH + 12, crash, CrashError)):
        stopped(tmp_path / "run", trip, at, error, **changes)
    run_in(tmp_path / "run", **parts(**changes))
    assert results(tmp_path / "run") == results(tmp_path / "whole")
    names = {line.split(b",")[6] for line in results(tmp_path / "run")[0]}
    assert {b"mid.kl", b"pe_loss.energy"} <= names


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_cuda_device_too(tmp_path):
    changes = {"settings": {"device": "cuda"}, "defenses": {"max_norm": MaxNorm()}}
    run_in(tmp_path / "whole", **parts(**changes))
    for at, trip, error in ((EPOCH + 7, ctrl_c, Interrupted), (EPOCH // 2, crash, CrashError)):
        stopped(tmp_path / "run", trip, at, error, **changes)
    run_in(tmp_path / "run", **parts(**changes))
    assert results(tmp_path / "run") == results(tmp_path / "whole")
