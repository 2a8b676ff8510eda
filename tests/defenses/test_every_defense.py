"""What holds for every defense, with the options of its file: after an interruption it goes on with the same bits, and
gradients in other units are protected alike.
"""

import pytest
import torch
import yaml
from attacks.views import gradients, scores_of, shares

from vflbench.attacks.direct import Direct
from vflbench.cli.components import component
from vflbench.defenses.base import Context, Defense, LabelDefense
from vflbench.defenses.chain import Chain
from vflbench.defenses.quantize import Quantize
from vflbench.defenses.sign import Sign
from vflbench.defenses.top_k import TopK
from vflbench.files import config_folder
from vflbench.messages.facts import PartyFeatures
from vflbench.numerics.auc import auc

ROWS, BATCH, D = 60, 20, 6
NODES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((config_folder() / "defense").glob("*.yaml"))}
NAMES = [name for name in NODES if name not in ("none", "binomial")]  # which come after others, or are none
SLOW = ("cae",)
OPTIONS = {
    "embedding_noise": {"memoise": "message"},
    "label_dp": {"mechanism": "lp_2st"},
    "dcor": {"warmup": 4},
    "nopeek": {"warmup": 4},
    "quantize": {"learn_batches": 2},
    "split_guard": {"p_fake": 0.5, "burn_in": 1},
    "vector_quantize": {"learn_batches": 2},
}


class Defended:
    """A defense in a chain, with what is made once a run: the width of the top's output, its entrance, and the epochs."""

    def __init__(self, name, before=None):
        defense = component({**NODES[name][name], **OPTIONS.get(name, {})}, f"defense.{name}", Defense)
        self.outputs = defense.outputs(1) if isinstance(defense, LabelDefense) else 1
        self.chain = Chain({name: defense})
        self.network = self.chain.entrance([D], torch.Generator().manual_seed(4))
        self.chain.plan(2)
        if before is not None:
            self.chain.restore(before.chain.state())
            if self.network is not None:
                self.network.load_state_dict(before.network.state_dict())

    def batch(self, rng, h, g, y, logits, context):
        """What each hook makes of a batch, in the order of a round."""
        chain = self.chain
        yield chain.order(context.ids, context)
        yield chain.arrange(context)
        yield chain.embedding(h, context)
        if self.network is not None:
            yield self.network([h])[0]
        labels = chain.labels(y, logits, context)
        yield labels
        yield chain.loss(logits, labels)
        yield chain.penalty([h], y)
        sent = chain.gradient(g, y, context)
        yield sent
        yield chain.received(plain(sent), h, context)
        yield torch.tensor(chain.learns(g[0], context))
        yield chain.update(g[0], context)
        yield torch.tensor(list(chain.figures().values()))


def plain(value):
    return value if isinstance(value, torch.Tensor) else value.values


def answers(name, *, interrupted):
    """Of all hooks in two epochs of three batches."""
    rng, drawn = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    h, numeric = torch.randn(ROWS, D, generator=drawn), torch.rand(ROWS, 2, generator=drawn)
    y = torch.arange(ROWS) % 2
    run, given = Defended(name), []
    for epoch in range(2):
        for ids in torch.randperm(ROWS, generator=drawn).split(BATCH):
            if interrupted:
                run = Defended(name, run)
            columns = PartyFeatures(numeric[ids], torch.empty(len(ids), 0, dtype=torch.int32))
            g, logits = torch.randn(BATCH, D, generator=drawn), torch.randn(BATCH, run.outputs, generator=drawn)
            values = run.batch(rng, h[ids], g, y[ids], logits, Context(ids, columns, epoch, rng))
            given += [plain(value) for value in values if not isinstance(value, float | None)]
    return given


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in NAMES])
def test_a_defense_that_is_interrupted_before_every_batch_protects_as_one_that_is_not(name):
    torch.testing.assert_close(*(answers(name, interrupted=interrupted) for interrupted in (False, True)), rtol=0, atol=0)


@pytest.mark.parametrize("name", ["batch_average", "gaussian", "marvell", "max_norm", "sign", "top_k"])
def test_gradients_in_other_units_are_protected_alike(name):
    g, y, ids = torch.randn(40, D, generator=torch.Generator().manual_seed(1)), torch.arange(40) % 2, torch.arange(40)
    defense = component({**NODES[name][name], **({"message": "gradients"} if name == "top_k" else {})}, name, Defense)

    def sent(unit):
        context = Context(ids, None, 0, torch.Generator().manual_seed(2))
        return plain(defense.gradient(unit * g, y, context)) / unit

    for unit in (1e-30, 1e10):
        torch.testing.assert_close(sent(unit), sent(1.0), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "defense",
    [Sign(scale="batch"), Sign(), TopK(fraction=1 / 16, message="gradients"), Quantize(levels=2, message="gradients")],
)
def test_compressed_gradients_give_the_class_away(rng, defense):
    """g = (p - y) J with a J that varies from row to row: what is left has its signs, for one class the opposite ones."""
    y = (torch.rand(512, generator=rng) < 0.25).long()
    j = torch.randn(32, generator=rng) + 0.5 * torch.randn(512, 32, generator=rng)
    g = (0.5 * torch.rand(512, generator=rng) - y)[:, None] * j
    sent = plain(defense.gradient(g, y, Context(torch.arange(512), None, 0, rng)))
    assert auc(scores_of(Direct(), gradients(sent), shares(0.25)), y) > 0.99
