import pytest
import torch
from builders import run_in, table

from vflbench.data.bernoulli import Bernoulli
from vflbench.data.synthetic import Synthetic
from vflbench.defenses.base import Chain
from vflbench.defenses.max_norm import MaxNorm
from vflbench.defenses.selective_update import SelectiveUpdate
from vflbench.defenses.shuffle import Shuffle
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.messages.transcript import Knowledge, Seat, Transcript
from vflbench.messages.wire import Kind, LocalWire
from vflbench.models.mlp import Mlp
from vflbench.models.optimizers.adam import Adam
from vflbench.protocols.base import Setting
from vflbench.protocols.federated_lr import FederatedLr
from vflbench.run.settings import Audit, Settings


def seat(rows, *, defenses=(), size=4, **options):
    protocol = FederatedLr(batch_size=size, **options)
    setting = Setting(
        table=rows,
        model=Mlp(),
        optimizer=Adam(),
        wire=LocalWire(),
        defense=lambda: Chain({type(d).__name__: d for d in defenses}),
        generators=Generators(0),
        device=torch.device("cpu"),
        round_size=protocol.parties * protocol.batches * size,
    )
    return protocol.start(setting)


def rounds(session, rows, seed=0, epochs=2):
    generator = torch.Generator().manual_seed(seed)
    size = session.rules.parties * session.rules.batches * session.rules.batch_size
    return [list(session.batches(rows, size, generator)) for _ in range(epochs)]


def test_parties_keep_their_batches_and_the_curious_one_takes_new_ones(rng):
    rows = table(rng, 24)
    session = seat(rows)
    first, second = rounds(session, rows)
    assert len(first) == 3
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one.ids[:4], other.ids[:4])
    assert not all(torch.equal(one.ids[4:], other.ids[4:]) for one, other in zip(first, second, strict=True))
    owned = [set(torch.cat([batch.ids[part] for batch in first]).tolist()) for part in (slice(4), slice(4, 8))]
    assert not owned[0] & owned[1]
    assert owned[1] == set(torch.cat([batch.ids[4:] for batch in second]).tolist())


def test_shuffling_changes_every_batch(rng):
    rows = table(rng, 24)
    first, second = rounds(seat(rows, defenses=[Shuffle()]), rows)
    assert not any(torch.equal(one.ids[:4], other.ids[:4]) for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize("parties", [2, 4])
def test_the_curious_one_sees_the_sum_of_the_others_updates(rng, parties):
    rows = table(rng, 40)
    session = seat(rows, parties=parties, reduction="sum")
    (batches,) = rounds(session, rows, epochs=1)
    for batch in batches:
        transcript = Transcript(batch.ids[:0], 0, 0, (0.5, 0.5))
        session.round(batch, transcript)
        curious = session.seats(Seat.PARTICIPANT)[0]
        view = transcript.view(curious, frozenset({Knowledge.UPDATES, Knowledge.FEATURES}), rng)
        private = session.private(batch)
        g = private.x.T @ (private.x @ view.updates.before / 4 - private.y / 2)
        assert torch.allclose(view.updates.others, -0.1 * g, atol=1e-12)
        assert private.owner == "+".join("abc"[: parties - 1])
        assert len(view.features.numeric) == 4
        assert torch.equal(view.updates.after, session.server.model)


def test_everything_goes_over_the_wire(rng):
    rows = table(rng, 24)
    session = seat(rows)
    (batches,) = rounds(session, rows, epochs=1)
    session.round(batches[0], None)
    traffic = session.wire.take_traffic()
    width = 2 + 5 + 7  # numeric, one-hot
    assert {route: (t.messages, t.bytes) for route, t in traffic.items()} == {
        ("a", "server", Kind.UPDATE): (1, 8 * width),
        ("b", "server", Kind.UPDATE): (1, 8 * width),
        ("server", "a", Kind.MODEL): (1, 8 * width),
        ("server", "b", Kind.MODEL): (1, 8 * width),
    }


def test_an_intercept_is_a_column_of_ones(rng):
    rows = table(rng, 24)
    design = seat(rows, intercept=True).design(rows)
    assert design.shape == (24, 15)
    assert (design[:, 0] == 1).all()
    assert (design[:, 3:].sum(dim=1) == 2).all()  # a one for each categorical column


def test_a_run_rebuilds_every_batch_and_goes_on_where_it_was(tmp_path):
    from vflbench.attacks.batch_reconstruction.attack import BatchReconstruction

    summary = run_in(
        tmp_path / "run",
        dataset=Bernoulli(rows=5, features=6, batches=10),
        protocol=FederatedLr(),
        attacks={"batch_reconstruction": BatchReconstruction()},
        settings=Settings(epochs="auto", audit=Audit(batches="all")),
    )
    (found,) = summary["reconstructions"]
    assert found["figures"]["contained"]["mean"] == 1
    assert found["figures"]["rounds"]["mean"] == summary["epochs"] == 16
    assert summary["test_auc"] > 0.5
    assert (tmp_path / "run" / "reconstructions.npz").exists()


def test_what_does_not_fit_is_refused(tmp_path, rng):
    with pytest.raises(ValueError, match="asynchronous"):
        FederatedLr(batches=2)
    with pytest.raises(UserError, match=r"need 2000 training rows"):
        run_in(tmp_path, dataset=Bernoulli(rows=5), protocol=FederatedLr(batch_size=1000), attacks={}, settings=auto())
    with pytest.raises(UserError, match=r"make \d+ features"):
        run_in(tmp_path, dataset=Synthetic(rows=3000), protocol=FederatedLr(), attacks={}, settings=auto())
    with pytest.raises(UserError, match="would protect nothing"):
        run_in(
            tmp_path,
            dataset=Bernoulli(),
            protocol=FederatedLr(),
            attacks={},
            defenses={"max_norm": MaxNorm()},
            settings=auto(),
        )
    with pytest.raises(UserError, match="would protect nothing"):
        run_in(tmp_path, defenses={"selective_update": SelectiveUpdate()})
    with pytest.raises(UserError, match="two classes"):
        seat(table(rng, 24, classes=3))


def auto():
    return Settings(audit=Audit())
