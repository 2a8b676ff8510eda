"""Settings of a run that belong to no component."""

from vflbench.run.settings import Audit


def test_audited_batches_of_epochs_to_come():
    assert Audit(batches=5).in_epochs(3, 100) == 15
    assert Audit(batches=5, epochs="last").in_epochs(3, 100) == 5
    assert Audit(batches=5, epochs="last").in_epochs(0, 100) == Audit(batches="all").in_epochs(0, 100) == 0
