"""Recordings that were damaged at random: each is audited, or refused in a paragraph, and nothing else happens."""

import random
import resource
import warnings

import pytest
from mutated_recordings import Mutable, recordings

from vflbench.attacks.completion import Completion
from vflbench.attacks.hints import Hints
from vflbench.attacks.norm import Norm
from vflbench.attacks.spectral import Spectral
from vflbench.errors import UserError
from vflbench.run.offline import audit


def outcome(recording, number):
    """Empty for an audit; the paragraph, with control characters shown, of a refusal."""
    attacks = [{"norm": Norm()}, {"spectral": Spectral()}, {"hints": Hints(k=2)}][number % 3]
    if number % 20 == 0:
        attacks = {"completion": Completion(known=4)}
    with recording.damaged(random.Random(number)) as what:
        try:
            audit(recording.folder, attacks, probe=number % 500 == 0)
        except UserError as error:
            return str(error)
        except Exception as error:
            raise AssertionError(f"mutation {number} of {recording.folder.name}: {what}") from error
    return ""


def fuzzed(folder, numbers):
    """The outcome of each damaged recording, in a folder where nothing else may appear, in 500 MB more than before."""
    inside = folder / "recordings"
    made = [Mutable(path) for path in recordings(inside)]
    sound = set(folder.rglob("*"))
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [outcome(made[number % 2], number) for number in numbers]
    assert all(text.isprintable() and len(text) < 1500 for text in outcomes if text)
    assert set(folder.rglob("*")) == sound
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 500_000  # kB
    return outcomes


@pytest.mark.slow
def test_damaged_recordings_are_audited_or_refused(tmp_path):
    outcomes = fuzzed(tmp_path, [*range(600), 6923])
    assert 60 < sum(not text for text in outcomes) < 400
    assert len({text.partition(": ")[2][-40:] for text in outcomes}) > 80  # many reasons
