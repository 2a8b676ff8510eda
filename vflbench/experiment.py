"""The story of one run, top to bottom."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from vflbench.attacks.base import Attack
from vflbench.audit import Auditor, unmet_attacks
from vflbench.data.base import Dataset
from vflbench.data.batches import Batches, choose_batch_size, ordered_batches, shuffled_batches
from vflbench.data.rows import EncodedRows, evenly_spaced
from vflbench.data.table import VerticalTable
from vflbench.defenses.base import Chain, Defense
from vflbench.errors import UserError
from vflbench.generators import Generators
from vflbench.metrics.leakage import LeakTable
from vflbench.metrics.utility import utility
from vflbench.models.base import Model
from vflbench.optimizers.base import Optimizer
from vflbench.protocols.base import Protocol, Session, Setting
from vflbench.recorder import Recorder
from vflbench.results import EpochResult, describe, epoch_rows, introduce, summarise
from vflbench.settings import Settings, choose_device
from vflbench.wire import Wire

_PREDICTION_BATCH = 8192


@dataclass(frozen=True)
class Experiment:
    """Everything that one run is made of. defenses, attacks: by the name under which they were chosen."""

    dataset: Dataset
    model: Model
    protocol: Protocol
    wire: Wire
    optimizer: Optimizer
    defenses: Mapping[str, Defense]
    attacks: Mapping[str, Attack]
    settings: Settings


def run(experiment: Experiment, recorder: Recorder) -> dict[str, Any]:
    """Load, seat the parties, train and attack epoch by epoch, write it down. Returns what summary.json shall hold."""
    settings, generators = experiment.settings, Generators(experiment.settings.seed)
    device = choose_device(settings.device)
    data = experiment.dataset.load(generators["data"])
    batch_size = choose_batch_size(settings.batch_size, len(data.train))
    recorder.begin(device=str(device), batch_size=batch_size, data=describe(data))
    recorder.say(f"{introduce(data)}; batches of {batch_size} on {device}")
    for note in data.notes:
        recorder.say(note, always=True)
    skipped = unmet_attacks(experiment.attacks, experiment.protocol, data.train.classes)
    for name, reason in skipped.items():
        recorder.say(f"attack={name} is skipped: {reason}", always=True)
    attacks = {name: attack for name, attack in experiment.attacks.items() if name not in skipped}

    train, test = data.train.to(device), data.test.to(device)
    setting = Setting(
        table=train,
        model=experiment.model,
        optimizer=experiment.optimizer,
        wire=experiment.wire,
        defense=lambda: Chain(copy.deepcopy(list(experiment.defenses.values()))),
        generators=generators,
        device=device,
    )
    session = experiment.protocol.start(setting)
    auditor = Auditor(attacks, session, generators, train)
    results = []
    for epoch in range(settings.epochs):
        batches = shuffled_batches(train, batch_size, generators["batches"])
        try:
            result = train_epoch(epoch, batches, session, auditor, settings, recorder)
        except NonFiniteLossError as error:
            raise diverged(experiment.optimizer, str(error)) from error
        result.traffic["train"] = experiment.wire.take_traffic()
        for split, table in (("train", train.sample(settings.audit.train_rows)), ("test", test)):
            start = perf_counter()
            logits, labels = predict(session, table)
            if not logits.isfinite().all():
                raise diverged(experiment.optimizer, f"a prediction is not a finite number after epoch {epoch}")
            result.utility[split] = utility(logits, labels)
            result.seconds[f"{split}_prediction"] = perf_counter() - start
            result.traffic[f"{split}_prediction"] = experiment.wire.take_traffic()
        recorder.write(epoch_rows(result))
        recorder.say(result.line())
        results.append(result)
    return summarise(results, skipped, experiment.defenses, data)


def train_epoch(
    epoch: int, batches: Batches, session: Session, auditor: Auditor, settings: Settings, recorder: Recorder
) -> EpochResult:
    """Every batch once; the audited ones are attacked right after their round, which changes nothing that follows."""
    steps = len(batches)
    wanted = steps if settings.audit.batches == "all" else settings.audit.batches
    audited = set(evenly_spaced(steps, wanted).tolist())
    leaks, losses, penalties, audit_seconds, start = LeakTable(), [], [], 0.0, perf_counter()
    with tqdm(total=batches.rows, desc=f"epoch {epoch}", unit="row", unit_scale=True, disable=None, leave=False) as bar:
        for step, batch in enumerate(batches):
            transcript = auditor.transcript(batch, epoch, step) if step in audited else None
            outcome = session.round(batch, transcript)
            if not math.isfinite(outcome.loss + outcome.penalty):
                raise NonFiniteLossError(f"the loss became {outcome.loss + outcome.penalty} at epoch {epoch}, step {step}")
            losses.append(outcome.loss)
            penalties.append(outcome.penalty)
            if transcript is not None:
                audit_start = perf_counter()
                auditor.attack(transcript, batch.labels, leaks)
                audit_seconds += perf_counter() - audit_start
            if step % settings.log_every == 0:
                recorder.log(f"epoch {epoch} step {step}/{steps} loss: {outcome.loss:.4f}")
            bar.set_postfix_str(f"loss {outcome.loss:.4f}", refresh=False)
            bar.update(len(batch))
    return EpochResult(
        epoch=epoch,
        loss=math.fsum(losses) / steps,
        penalty=math.fsum(penalties) / steps,
        leaks=leaks.leaks(),
        seconds={"train": perf_counter() - start - audit_seconds, "audit": audit_seconds},
    )


def predict(session: Session, table: VerticalTable | EncodedRows) -> tuple[Tensor, Tensor]:
    """Logits and labels of every row, in order."""
    scored = [(session.predict(batch), batch.labels) for batch in ordered_batches(table, _PREDICTION_BATCH)]
    logits, labels = zip(*scored, strict=True)
    return torch.cat(logits), torch.cat(labels)


class NonFiniteLossError(ArithmeticError):
    """A loss that can't be trained on."""


def diverged(optimizer: Optimizer, what: str) -> UserError:
    """The likely cause, and what is left."""
    return UserError(
        f"{what}; the step size is the likely cause, so try a smaller one. Epochs that were finished are in metrics.csv",
        key="optimizer.lr",
        value=getattr(optimizer, "lr", None),
    )
