"""dataset.overlap: each non-label party holds a share of the rows, and those that all share are used."""

import numpy as np
import pytest
import torch
from support.raw_files import error_of

from vflbench.data.base import shared_rows
from vflbench.data.pictures import Digits
from vflbench.data.synthetic import Synthetic


def load(**options):
    made = {"rows": 4000, "numeric": 4, "categorical": 4, "vocabulary": 200, "parties": 2}
    return Synthetic(**{**made, **options}).load(torch.Generator().manual_seed(3))


@pytest.mark.parametrize("parties", [1, 2, 4])
def test_each_party_s_share_is_exact_and_independent_of_the_others(parties):
    """So the shared rows are a share^K of all, to what chance allows; rows that were dropped stay so."""
    rows, share = 300_000, 0.6
    kept = np.ones(rows, dtype=bool)
    kept[:1000] = False
    shared, facts, note = shared_rows(kept, share, "abcd"[:parties], torch.Generator().manual_seed(1))
    total = rows - 1000
    expected, chance = total * share**parties, np.sqrt(total * share**parties * (1 - share**parties))
    assert not shared[:1000].any()
    assert abs(shared.sum() - expected) < (1 if parties == 1 else 5 * chance)
    assert abs(shared[-50_000:].mean() - share**parties) < 0.02
    held = dict.fromkeys("abcd"[:parties], round(share * total))
    assert facts["overlap"] == {"rows": total, "shared": int(shared.sum()), "held": held}
    assert f"the {shared.sum():,} that all share are used, and {total - shared.sum():,} are left out" in note


def test_all_of_it_is_no_overlap_at_all_and_draws_nothing():
    whole, plain = load(overlap=1.0), load()
    assert whole.fingerprint == plain.fingerprint
    assert (whole.facts, whole.notes) == (plain.facts, plain.notes)
    assert "overlap" not in plain.facts
    rng, other = (torch.Generator().manual_seed(3) for _ in range(2))
    Digits().load(rng)
    Digits(overlap=1.0).load(other)
    assert torch.equal(rng.get_state(), other.get_state())


def test_rows_that_one_party_lacks_are_in_no_split_and_are_not_fitted():
    whole = load(validation_fraction=0.2)
    for share in (0.5, 1 - 1e-9):
        part = load(overlap=share, validation_fraction=0.2)
        used = len(part.train) + len(part.test) + len(part.validation)
        assert used == part.facts["overlap"]["shared"]
        assert part.notes[-1].startswith("overlap: of the label party's 4,000 rows each non-label party holds ")
        assert (part.train.role == 0).sum() == 4000 - used
        assert np.array_equal(part.train.raw.numeric, whole.train.raw.numeric)  # the same source
    assert abs(load(overlap=0.5).facts["overlap"]["shared"] - 1000) < 5 * np.sqrt(750)
    half = load(overlap=0.5, fit_on="all")
    shared = half.train.role != 0
    raw, encoding = half.train.raw, half.train.encoding.parties["a"]
    assert np.array_equal(encoding.low, raw.numeric[shared][:, encoding.numeric].min(axis=0))
    assert half.fingerprint != load().fingerprint
    assert half.fingerprint == load(overlap=0.5).fingerprint


def test_too_little_overlap_is_refused():
    text = error_of(Synthetic(rows=100, parties=4, overlap=0.01))
    assert "dataset.overlap=0.01: of 100 rows, each of 4 holds 1, and " in text
    assert "are shared; training needs more" in text
