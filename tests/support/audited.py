"""Rounds that an auditor attacks, without a run around them."""

from functools import partial

import torch
from support.builders import session

from vflbench import Attack, Threat
from vflbench.data.synthetic import Synthetic
from vflbench.generators import Generators
from vflbench.numerics.hashing import mix, unmix
from vflbench.run.attackers import draw_canaries
from vflbench.run.auditor import Auditor
from vflbench.run.settings import Audit


def clicks(parties=1):
    return Synthetic(rows=700, vocabulary=100, parties=parties).load(torch.Generator().manual_seed(0))


class Audited:
    """Epochs of the same first batches of the training rows.

    audited: how many of an epoch's rounds are attacked; None for all. canaries: how many rows have a coin for a label.
    options: of `builders.session`. findings: of each epoch; leaks: of the last one.
    """

    def __init__(self, data, attacks, *, steps=4, size=100, epochs=1, canaries=0, audited=None, cheating=(), **options):
        self.generators = Generators(0)
        self.canaries = draw_canaries(data.train, canaries, self.generators["canaries"])
        self.rows = data.aligned().relabelled(self.canaries.planted)
        self.train = data.train.all()
        self.session = session(self.train, rows=self.rows, **options)
        known = attacks, self.generators, self.session.roles(), data.train, self.rows, self.canaries
        how = {"how": Audit(batches="all" if audited is None else audited, probe=False), "group": size}
        how |= {"held_out": data.test, "auxiliary": data.test, "cut_layers": self.session.cut_layers(), "cheating": cheating}
        self.auditor = Auditor(*known, **how)
        self.names = partial(mix, key=self.auditor.name_key)  # of ids
        self.ids = partial(unmix, key=self.auditor.name_key)  # of names
        self.batches = self.train.ids[: steps * size].split(size)
        self.findings = [self.epoch(number) for number in range(epochs)]
        self.leaks = self.findings[-1].leaks if epochs else []

    def epoch(self, number):
        self.auditor.begin_epoch(number, len(self.batches))
        for step, ids in enumerate(self.batches):
            watch = self.auditor.wants(step)
            self.auditor.see(self.session.round(ids, epoch=number, step=step, watch=watch))
        facts = self.session.facts(torch.cat(self.auditor.parts_at_the_end[:2]), self.auditor.wants_at_the_end)
        return self.auditor.end_epoch(facts)

    def attack(self, name):
        """As it stands at its first party."""
        return next(one.attack for one in self.auditor.attackers if one.name == name)

    def labels(self, names):
        """(n,) classes of the rows with these names, which no attacker can look up."""
        return self.rows.labels(self.ids(names))


def scripted(*knows, threat=None, **members):
    """An attack that knows these facts. threat: what else its threat says. members: its methods, as functions of a view
    alone, and attributes of its class.
    """
    bound = {name: staticmethod(member) if callable(member) else member for name, member in members.items()}
    return type("Scripted", (Attack,), {"threat": Threat(knows=knows, **(threat or {})), **bound})()
