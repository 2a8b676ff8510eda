import resource
import signal

import numpy as np
import pytest
import torch
from support.damaged_checkpoints import DAMAGE, Bomb

from vflbench.errors import UserError
from vflbench.run.checkpoint import Checkpoint, UnusableCheckpointError

STATE = {"weights": {"w": torch.arange(1000.0)}, "rows": [["a", 1, 0.5, None, True]], "empty": {}}


def test_a_state_comes_back_as_it_was(tmp_path):
    assert Checkpoint(tmp_path).load() is None
    assert Checkpoint(tmp_path).save(STATE)
    back = Checkpoint(tmp_path).load()
    assert torch.equal(back["weights"]["w"], STATE["weights"]["w"])
    assert (back["rows"], back["empty"]) == (STATE["rows"], {})
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_what_shares_memory_is_written_once_and_shares_it_again(tmp_path):
    packed = torch.zeros(100_000, 3)
    Checkpoint(tmp_path).save({"network": {"table": packed[:, :1]}, "optimizer": {"packed": packed}})
    assert (tmp_path / "checkpoint.pt").stat().st_size < 1.1 * packed.nbytes
    back = Checkpoint(tmp_path).load()
    back["optimizer"]["packed"][5, 0] = 7
    assert back["network"]["table"][5, 0] == 7


def test_kept_only_as_long_as_it_was_wanted(tmp_path):
    for wanted, there in (("resume", False), ("keep", True)):
        checkpoint = Checkpoint(tmp_path, wanted)
        assert checkpoint.save(STATE)
        checkpoint.finish()
        assert checkpoint.path.exists() is there
    assert Checkpoint(tmp_path, fresh=True).load() is None
    (tmp_path / "checkpoint.pt").unlink()
    assert not Checkpoint(tmp_path, "none").save(STATE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_not_ours_or_not_whole_is_refused_and_nothing_in_it_runs(tmp_path, monkeypatch, damage):
    monkeypatch.chdir(tmp_path)
    Checkpoint(tmp_path).save(STATE)
    damage(tmp_path / "checkpoint.pt")
    with pytest.raises(UnusableCheckpointError, match=r"checkpoint\.pt"):
        Checkpoint(tmp_path).load()
    assert not (tmp_path / "executed").exists()


def test_a_full_disk_is_told_and_the_checkpoint_before_stays_whole(tmp_path):
    Checkpoint(tmp_path).save(STATE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))  # a disk that takes no more
    try:
        with pytest.raises(UserError, match=r"checkpoint=resume: the checkpoint can't be written: .*is whole"):
            Checkpoint(tmp_path).save({"weights": torch.zeros(100_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert torch.equal(Checkpoint(tmp_path).load()["weights"]["w"], STATE["weights"]["w"])
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_what_no_checkpoint_can_hold_is_named_and_not_written(tmp_path):
    for odd, kind in (({1, 2}, "set"), (np.float64(1), "float64"), (Bomb(), "Bomb")):
        checkpoint = Checkpoint(tmp_path)
        assert not checkpoint.save({"attacks": [["norm", "a", {"seen": odd}]]})
        assert checkpoint.refused == f"attacks.0.2.seen: {kind}"
    assert list(tmp_path.iterdir()) == []
