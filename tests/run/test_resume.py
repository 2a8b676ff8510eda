"""A run that was stopped anywhere ends with the bytes of one that never was."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.audited import scripted
from support.builders import CrashError, Stop, crash, ctrl_c, every_attack, results, run_in
from support.damaged_checkpoints import DAMAGE, changed

from vflbench import Gradients, Scores
from vflbench.attacks.attribute import Attribute
from vflbench.attacks.averaging import Averaging
from vflbench.attacks.hints import Hints
from vflbench.attacks.kmeans import Kmeans
from vflbench.data.synthetic import Synthetic
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
from vflbench.errors import UserError
from vflbench.models.networks import WideDeep
from vflbench.run.checkpoint import Checkpoint
from vflbench.run.interruption import Interrupted, Interruption
from vflbench.run.settings import Audit, Settings

EPOCHS, BATCH, MESSAGES = 3, 64, 4  # messages a step: two parties, up and down
STEPS = 5
EPOCH = STEPS * MESSAGES + 2 * 2  # messages of an epoch: its batches, and two predictions by two parties


def parts(**changes: Any) -> dict[str, Any]:
    """A run of tenths of a second, with canaries, whose defenses and attacks draw and remember."""
    settings = {"epochs": EPOCHS, "batch_size": BATCH, "audit": Audit(batches=2, probe=False), **changes.pop("settings", {})}
    defenses = {"fresh": LabelDp(fresh_every_epoch=True), "max_norm": MaxNorm(), "nopeek": Nopeek(), "marvell": Marvell()}
    attacks = {"averaging": Averaging(rows=50), "unscored": Hints(k=60), "kmeans": Kmeans(message="gradients", map="hints")}
    return {
        "dataset": Synthetic(rows=400, vocabulary=100, parties={"a": ["I*"], "b": ["C1*"], "label": ["C2*"]}),
        "model": WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True),
        "defenses": defenses,
        "attacks": attacks | every_attack("norm", "remainder", "no_message"),
        "settings": Settings(**settings),
        **changes,
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The results of `parts` that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    run_in(folder, **parts())
    assert not (folder / "checkpoint.pt").exists()
    return results(folder)


def stopped(folder: Path, trip: Callable, at: int, error: type[BaseException], **changes: Any):
    with pytest.raises(error) as caught:
        run_in(folder, **parts(engine=Stop(at=at, trip=trip), **changes))
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "line"),
    [
        (STEPS * MESSAGES // 2, "left nothing to go on from"),
        (EPOCH + STEPS * MESSAGES // 2, "going on before epoch 1\n"),
        (EPOCHS * EPOCH - 1, "going on before epoch 2\n"),
    ],
    ids=["in epoch 0", "in the middle of epoch 1", "at the very last"],
)
def test_what_a_crash_loses_is_computed_again_to_the_same_bytes(tmp_path, whole, message, line):
    stopped(tmp_path, crash, message, CrashError)
    run_in(tmp_path, **parts())
    assert results(tmp_path) == whole
    assert line in (tmp_path / "train.log").read_text()


def no_checkpoint_is_mapped() -> None:
    maps = Path("/proc/self/maps")  # of Linux
    assert not maps.exists() or "checkpoint.pt" not in maps.read_text()


@pytest.mark.parametrize(
    ("message", "place"),
    [
        pytest.param(0, "epoch 0, step 1", marks=pytest.mark.slow, id="at the first message"),
        pytest.param(EPOCH - 3, "epoch 1", marks=pytest.mark.slow, id="while epoch 0 predicts"),
        pytest.param(EPOCH + 5, "epoch 1, step 2", id="in epoch 1"),
    ],
)
def test_ctrl_c_loses_nothing_and_goes_on_after_that_very_batch(tmp_path, whole, message, place):
    error = stopped(tmp_path, ctrl_c, message, Interrupted)
    assert f"stopped before {place}, and saved; the same command goes on from there ({tmp_path})" == str(error)
    with (tmp_path / "metrics.csv").open("a") as file:
        file.write("1,train,,,,,loss,0.12")  # a torn last line, which is cut off
    run_in(tmp_path, **parts(engine=Stop(at=1, trip=no_checkpoint_is_mapped)))
    assert results(tmp_path) == whole
    assert f"going on before {place}\n" in (tmp_path / "train.log").read_text()
    assert [r["place"] for r in json.loads((tmp_path / "manifest.json").read_text())["resumed"]] == [place]


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


def with_state(path, place, value):
    torch.save(changed(torch.load(path, weights_only=True), place, value), path)


QUICK = ("a bit flipped", "a pickle that acts, in the right file", "metrics.csv cut")
UNUSABLE = {
    **{name: DAMAGE[name] for name in QUICK[:2]},
    "metrics.csv cut": lambda path: (path.parent / "metrics.csv").write_text("epoch\n"),
    "other rows": lambda path: with_state(path, ("metrics_bytes",), 100),
    "an epoch twice": lambda path: with_state(path, ("results",), 2 * torch.load(path, weights_only=True)["results"]),
    "fits only in part": lambda path: with_state(path, ("session", "label", "network"), {}),
}


def printed(capsys):
    """What was printed, without the breaks of its lines."""
    return " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("damage", [*QUICK, *(pytest.param(n, marks=pytest.mark.slow) for n in [*UNUSABLE][len(QUICK) :])])
def test_a_checkpoint_that_can_not_be_used_costs_the_epochs_but_not_the_run(crashed, whole, monkeypatch, damage, capsys):
    monkeypatch.chdir(crashed)
    UNUSABLE[damage](crashed / "checkpoint.pt")
    run_in(crashed, **parts())
    assert "starting from the beginning" in printed(capsys)
    assert results(crashed) == whole
    assert not (crashed / "executed").exists()


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
@pytest.mark.parametrize(
    "made",
    [
        *((LabelDp(mechanism=mechanism), MaxNorm()) for mechanism in ("randomized_response", "lp_2st", "zero_sum")),
        (TopK(fraction=0.5), Quantize(learn_batches=STEPS + 3), Binomial(n=8, biased=True)),
        (Nopeek(warmup=20), VectorQuantize(words=4, learn_batches=STEPS + 3)),
        (EmbeddingNoise(eps=50.0, memoise="noise"), EmbeddingNoise(mechanism="laplace", eps=50.0, memoise="message")),
        (EmbeddingNoise(eps=50.0), Mid(beta=0.1, width=4), PeLoss()),
    ],
)
def test_randomized_labels_learned_ranges_codebooks_and_noise_go_on_as_they_were(tmp_path, made):
    attacks = every_attack("no_message") | {"attribute": Attribute(known=50, rows=200)}
    changes = {"defenses": {f"d{number}": defense for number, defense in enumerate(made)}, "attacks": attacks}
    run_in(tmp_path / "whole", **parts(**changes))
    for at, trip, error in ((15, ctrl_c, Interrupted), (EPOCH + 12, crash, CrashError)):
        stopped(tmp_path / "run", trip, at, error, **changes)
    run_in(tmp_path / "run", **parts(**changes))
    assert results(tmp_path / "run") == results(tmp_path / "whole")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_noted_and_the_run_ends_where_it_chooses(number, code):
    before = signal.getsignal(number)
    with Interruption() as interruption:
        interruption.end("nothing was asked")
        os.kill(os.getpid(), number)
        assert interruption.asked == number
        with pytest.raises(Interrupted, match="saved") as stopped:
            interruption.end("saved")
    assert stopped.value.exit_code == code
    assert isinstance(stopped.value, KeyboardInterrupt)
    assert signal.getsignal(number) == before


def test_the_second_signal_stops_at_once():
    with Interruption():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(Interrupted, match="at once"):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
def test_a_recording_whose_run_was_stopped_after_the_last_batch_of_an_epoch_has_its_end(tmp_path):
    def run(name, *, stops=False):
        def batch(view):
            if stops and (view.epoch, view.step) == (0, 8):  # the last one of the epoch
                os.kill(os.getpid(), signal.SIGTERM)
            return Scores(view.ids, view[Gradients].layers["f2"].norm(dim=1))

        settings = Settings(epochs=2, batch_size=50, record="messages", audit=Audit(batches=3))
        attacks = {"last": scripted(Gradients, batch=batch)}
        run_in(tmp_path / name, dataset=Synthetic(rows=500, vocabulary=100), attacks=attacks, settings=settings)

    with pytest.raises(Interrupted):
        run("stopped", stops=True)
    run("stopped")
    run("whole")
    stopped, whole = (
        {path.name: path.read_bytes() for path in (tmp_path / run / "recording").rglob("*") if path.is_file()}
        for run in ("stopped", "whole")
    )
    assert sorted(stopped) == sorted(whole)
    assert [name for name in whole if stopped[name] != whole[name]] == []
