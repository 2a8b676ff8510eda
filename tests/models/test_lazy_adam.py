"""Adam that updates the rows of a batch alone: it agrees with dense Adam, and its compiled form with the plain one."""

import copy
import itertools

import pytest
import torch
from support.builders import session, table, weights
from torch import optim

from vflbench.errors import UserError
from vflbench.models.base import ColumnEmbedding
from vflbench.models.lazy_adam import LazyAdam, TorchRows
from vflbench.models.lazy_adam_numba import NumbaRows
from vflbench.models.networks import WideDeep
from vflbench.models.optimizers import Adam
from vflbench.numerics.optim import IdleAdam

SIZES = (3, 40, 900, 4000)
LR = 1e-3
KERNELS = ("torch", "numba")


def embedding(dim: int = 4) -> ColumnEmbedding:
    return ColumnEmbedding(SIZES, dim, torch.Generator().manual_seed(0), std=0.01)


def batches(count, rng, n=256):
    """Ids after Zipf: rows of the table are met often, seldom, and twice in a batch."""
    for _ in range(count):
        yield torch.stack([((c + 1) ** torch.rand(n, generator=rng)).int().clamp_max(c) - 1 for c in SIZES], 1)


def train(steps, *steppers, scale=1.0, seed=1):
    """Train all networks on the same ids, with gradients as small as those of a mean over a large batch."""
    rng = torch.Generator().manual_seed(seed)
    direction = torch.randn(4 * len(SIZES), generator=rng) * 50
    for ids in batches(steps, rng):
        y = torch.randn(256, generator=rng)
        for module, optimizer in steppers:
            loss = ((module(ids).flatten(1) @ direction.to(module.table.dtype)) - y).square().mean() * scale
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def lazy(kernel, **changes):
    module = embedding()
    return module, LazyAdam(lr=LR, kernel=kernel, **changes).attach(module)


@torch.no_grad()
def settle(optimizer):
    """Apply the idle steps of all rows."""
    for rows in optimizer.rows:
        rows.caught_up(rows.packed)


@pytest.mark.slow
def test_after_200_steps_the_weights_are_those_of_dense_adam():
    """Against torch's dense Adam in float64, in units of the step size; weights have moved by several steps.

    Measured: median 4e-5, largest 0.07. Gradients of the size of eps: median 1.03e-3, because the mean denominator is a
    rough approximation there.
    """
    for scale in (1.0, 1e-6):
        dense = embedding().double()
        ours = {kernel: lazy(kernel) for kernel in KERNELS}
        train(200, (dense, optim.Adam(dense.parameters(), lr=LR)), *ours.values(), scale=scale)
        moved = (dense.table.detach() - embedding().table.detach().double()).abs() / LR
        seen = moved > 0
        assert seen.double().mean() > 0.5
        assert moved[seen].median() > 2
        for kernel, (module, optimizer) in ours.items():
            settle(optimizer)
            gap, case = (dense.table.detach() - module.table.detach().double()).abs() / LR, f"{kernel}, {scale}"
            assert gap[seen].median() < (1e-3 if scale > 1e-6 else 2e-3), case
            assert gap.max() < 0.15, case
            assert not gap[~seen].any(), case


@pytest.mark.parametrize("kernel", KERNELS)
def test_reading_without_training_changes_nothing_and_agrees_with_settling(kernel):
    module, optimizer = lazy(kernel)
    train(30, (module, optimizer))
    before = module.lookup.packed.clone()
    ids = torch.stack([torch.arange(2000) % c for c in SIZES], 1).int()
    with torch.no_grad():
        read = module(ids)
    assert torch.equal(module.lookup.packed.view(torch.int32), before.view(torch.int32))
    assert not read.requires_grad
    settle(optimizer)
    assert torch.equal(read, module.table.detach()[(ids + module.offsets).long()])


@pytest.mark.parametrize("kernel", KERNELS)
def test_training_goes_on_from_a_saved_state_bit_for_bit_and_from_no_impossible_one(kernel):
    """The compiled loop takes the step of a row as an index: it must lie in the table of sums."""
    (module, whole), (resumed, stepper) = lazy(kernel), lazy(kernel)
    train(20, (module, whole))
    kept = whole.state_dict()["rows"][0]["packed"]
    assert kept.untyped_storage().data_ptr() == module.state_dict()["table"].untyped_storage().data_ptr()  # saved once
    state = copy.deepcopy({"network": module.state_dict(), "optimizer": whole.state_dict()})
    (rows,) = state["optimizer"]["rows"]
    late = rows["packed"].clone()
    late.view(torch.int32)[0, 12] = 21  # the step of a row
    for wrong in ({"packed": late}, {"step": 2**40}, {"packed": rows["packed"][:, :1]}):
        with pytest.raises(ValueError, match="rows of a table"):
            stepper.load_state_dict({**state["optimizer"], "rows": [{**rows, **wrong}]})
    train(5, (resumed, stepper), seed=3)
    numbers = rows["packed"].view(torch.int32)
    numbers[:, 13] = 6  # as if the next batch had seen each row already
    numbers[:, 14] = 1 << 28  # and kept its sum far outside
    resumed.load_state_dict(state["network"])
    stepper.load_state_dict(state["optimizer"])
    for one in ((module, whole), (resumed, stepper)):
        train(20, one, seed=2)
    assert torch.equal(module.lookup.packed[:, :13], resumed.lookup.packed[:, :13])


@pytest.mark.slow
def test_a_whole_network_trains_as_with_adam(rng):
    rows = table(rng, rows=200, parties=("a", "b", "label"))
    model = WideDeep(bottom_layers=2, top_layers=1, width=8, wide=True)
    dense_session, lazy_session = (session(rows, model=model, optimizer=cls(lr=LR)) for cls in (Adam, LazyAdam))
    for ids in rows.ids.split(10):
        dense_session.round(ids)
        lazy_session.round(ids)
    for party in [*lazy_session.parties, lazy_session.label_party]:
        settle(party.optimizer)
    for ours, reference in zip(weights(lazy_session), weights(dense_session), strict=True):
        assert (ours - reference).abs().max() < 0.1 * LR


def test_betas_without_a_sum_and_a_missing_kernel_raise(monkeypatch):
    with pytest.raises(UserError, match="below beta2"):
        LazyAdam(beta1=0.9, beta2=0.9).attach(embedding())

    def missing(_name):
        raise ImportError("No module named 'numba'")

    monkeypatch.setattr("vflbench.models.lazy_adam.import_module", missing)
    with pytest.raises(UserError, match=r"No module named 'numba'.*\[fast\]"):
        LazyAdam(kernel="numba").attach(embedding())
    assert type(LazyAdam().attach(embedding()).rows[0]) is TorchRows


@pytest.mark.parametrize("kernel", KERNELS)
def test_without_the_first_moment_an_idle_weight_stays(kernel):
    """beta1 = 0 is Adam without momentum: then only rows of the batch move, as in torch's dense Adam."""
    ours, dense_one = embedding(), embedding()
    lazy_one = LazyAdam(lr=LR, beta1=0.0, beta2=0.999, kernel=kernel).attach(ours)
    reference = Adam(lr=LR, beta1=0.0, beta2=0.999).attach(dense_one)
    train(50, (ours, lazy_one), (dense_one, reference))
    settle(lazy_one)
    assert ours.table.isfinite().all()
    assert (ours.table - dense_one.table).abs().max() < 1e-5 * LR * 50


def test_the_sums_over_idle_steps_agree_with_summation():
    for beta1, beta2 in ((0.9, 0.999), (0.0, 0.9), (0.8, 0.99)):
        idle, r = IdleAdam(beta1, beta2), beta1 / beta2**0.5
        for last, k in itertools.product((1, 2, 50, 700), (1, 2, 30, 400)):
            j = torch.arange(1, k + 1, dtype=torch.float64)
            w = r**j * (1 - beta2 ** (last + j)).sqrt() / (1 - beta1 ** (last + j))
            c = ((1 - beta2 ** (last + j)) / beta2**j).sqrt()
            weight, shift = idle.sums(torch.tensor([last]), last + k)
            case = f"beta1={beta1} last={last} k={k}"
            assert weight.item() == pytest.approx(w.sum().item(), rel=1e-9, abs=1e-12), case
            if beta1:
                assert shift.item() == pytest.approx(((w * c).sum() / w.sum()).item(), rel=1e-9), case
        assert idle.sums(torch.tensor([0]), 5)[0].item() == 0


def rows_of(kind, dim=4):
    return kind(embedding(dim), IdleAdam(0.9, 0.999), LR, 1e-8)


def places(count):
    """The ids of batches as rows of the table."""
    for ids in batches(count, torch.Generator().manual_seed(1)):
        yield ids + embedding().offsets


def bits_after_training(rows):
    """What is read in training, and the table, of which the numbers of a batch alone are left out."""
    read = []
    for ids in places(6):
        values = rows(ids)
        direction = torch.cos(torch.arange(values.numel(), dtype=torch.float32)).view_as(values)
        (values * direction).sum().backward()
        with torch.no_grad():
            rows.update()
            read += [values.detach().clone(), rows(ids)]
    return torch.stack(read).view(torch.int32), rows.packed[:, : 3 * rows.dim + 1].clone().view(torch.int32)


@pytest.mark.slow
def test_the_compiled_form_has_the_bits_of_the_plain_one_at_any_width_and_in_any_number_of_threads():
    """Also by the loops that take the width as a number."""
    for dim in (3, 4, 17):
        plain, fast, general, together = (rows_of(kind, dim) for kind in (TorchRows, NumbaRows, NumbaRows, NumbaRows))
        general._lanes = ()
        together._threads = 3
        expected = bits_after_training(plain)
        for rows in (fast, general, together):
            assert all(map(torch.equal, bits_after_training(rows), expected)), dim


def test_a_batch_of_no_rows_and_ids_of_any_type_and_layout():
    rows = rows_of(NumbaRows)
    assert rows(torch.empty(0, 4, dtype=torch.int32)).shape == (0, 4, 4)
    with torch.no_grad():
        rows.update()
        ids = next(places(1))
        for other in (ids.long(), ids.T.contiguous().T, ids.repeat(1, 2)[:, :4]):
            assert torch.equal(rows(other), rows(ids))
        for outside in (-1, sum(SIZES)):
            with pytest.raises(IndexError):
                rows(torch.full((2, 4), outside, dtype=torch.int32))


def test_a_read_between_training_and_its_update_changes_nothing():
    """As an attack reads the table while a batch is on its way."""
    rows, other = rows_of(NumbaRows), rows_of(NumbaRows)
    for ids in places(3):
        values, expected = rows(ids), other(ids)
        with torch.no_grad():
            rows(torch.arange(sum(SIZES))[:, None])
            for one, read in ((rows, values), (other, expected)):
                read.grad = torch.ones_like(read)
                one.update()
    assert torch.equal(rows.packed[:, :13], other.packed[:, :13])
