"""Recordings of a partner who is careless or malicious: each is audited, or refused in a paragraph."""

import random
import warnings

from mutated_recordings import Mutable, recordings

from vflbench.attacks.completion import Completion
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.errors import UserError
from vflbench.run.offline import audit


def fuzzed(folder, count, seed):
    """How many of so many damaged recordings were audited, and how many refused."""
    made = [Mutable(path) for path in recordings(folder)]
    audited = 0
    for number in range(count):
        rng = random.Random(seed + number)
        attacks = {"norm": Norm(), "spectral": Spectral(), "hints": Hints(k=2)}
        if number % 10 == 0:
            attacks["completion"] = Completion(rows=8, epochs=1)
        recording = made[number % len(made)]
        with recording.damaged(rng) as what, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                audit(recording.folder, attacks)
                audited += 1
            except UserError as error:
                assert str(error).isprintable(), (seed + number, what, str(error))
            except Exception as error:
                raise AssertionError(f"mutation {seed + number} of {recording.folder.name}: {what}") from error
    return audited


def files(folder):
    return {path: path.stat().st_size for path in folder.rglob("*")}


def test_damaged_recordings_are_audited_or_refused(tmp_path):
    audited = fuzzed(tmp_path / "recordings", 300, seed=0)
    assert 30 < audited < 270
    assert [path.name for path in tmp_path.iterdir()] == ["recordings"]
