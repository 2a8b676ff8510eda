"""The story of one run, top to bottom."""

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Any

from vflbench.attacks.base import Attack
from vflbench.data.base import Dataset
from vflbench.data.rows import evenly_spaced
from vflbench.defenses.base import Chain, Defense, promises_epsilon, refuse_unfit
from vflbench.errors import NonFiniteError
from vflbench.generators import Generators
from vflbench.messages.wire import Wire
from vflbench.models.base import Model
from vflbench.models.optimizers.base import Optimizer, diverged
from vflbench.protocols.base import Protocol, Rounds, Setting
from vflbench.results.recorder import Recorder
from vflbench.run.account import refusals
from vflbench.run.auditor import Auditor, unmet_attacks
from vflbench.run.checkpoint import Checkpoint, UnusableCheckpointError
from vflbench.run.evaluation import evaluate
from vflbench.run.interruption import Interruption
from vflbench.run.machine import tune
from vflbench.run.progress import Epoch, Progress
from vflbench.run.resume import begin_or_go_on, save
from vflbench.run.settings import Settings, choose_device
from vflbench.run.summary import describe, epoch_rows, introduce, summarise


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


def run(experiment: Experiment, recorder: Recorder, checkpoint: Checkpoint) -> dict[str, Any]:
    """Load, seat the parties, train and attack epoch by epoch, write it down. Returns what summary.json shall hold.

    Goes on where the checkpoint says. Raises Interrupted after Ctrl-C or SIGTERM, when the batch in hand is done and saved.
    """
    try:
        return train_and_attack(experiment, recorder, checkpoint)
    except UnusableCheckpointError as error:
        recorder.say(f"{error}; starting from the beginning", always=True)
        checkpoint.discard()
        return run(experiment, recorder, checkpoint)


def train_and_attack(experiment: Experiment, recorder: Recorder, checkpoint: Checkpoint) -> dict[str, Any]:
    settings, generators = experiment.settings, Generators(experiment.settings.seed)
    device, machine = choose_device(settings.device), tune()
    data = experiment.dataset.load(generators["data"])
    batch_size = experiment.protocol.round_size(settings.batch_size, data)
    epochs = experiment.protocol.choose_epochs(settings.epochs, data)
    train, test = data.train.to(device), data.test.to(device)
    refuse_unfit(experiment.defenses, experiment.protocol, data.train.classes)
    skipped = unmet_attacks(experiment.attacks, experiment.protocol, data.train.classes)
    attacks = {name: attack for name, attack in experiment.attacks.items() if name not in skipped}
    setting = Setting(
        table=train,
        model=experiment.model,
        optimizer=experiment.optimizer,
        wire=experiment.wire,
        defense=lambda: Chain(copy.deepcopy(dict(experiment.defenses))),
        generators=generators,
        device=device,
        precision=settings.precision,
        round_size=batch_size,
    )
    session = experiment.protocol.start(setting)
    canaries = settings.audit.planted(len(train), promised=promises_epsilon(experiment.defenses))
    auditor = Auditor(attacks, session, generators, train, batch_size, canaries, held_out=test)
    progress = Progress(generators, session, auditor, experiment.wire)
    facts = {"device": str(device), "machine": machine, "batch_size": batch_size, "data": describe(data)}
    begin_or_go_on(progress, recorder, checkpoint, **facts)
    recorder.say(f"{introduce(data)}; batches of {batch_size} on {device}")
    for note in (*data.notes, *auditor.canaries.notes, *refusals(session.claims())):
        recorder.say(note, always=True)
    for name, reason in skipped.items():
        recorder.say(f"attack={name} is skipped: {reason}", always=True)

    sample = train.sample(settings.audit.train_rows)
    with Interruption() as interruption:
        while len(progress.results) < epochs:
            epoch = progress.begin_epoch()
            batches = session.batches(train, batch_size, generators["batches"])
            try:
                train_epoch(epoch, batches, progress, settings, recorder, interruption)
                if not interruption.asked:
                    result = evaluate(epoch.result(), progress, {"train": sample, "test": test})
                    recorder.write(epoch_rows(result))
                    recorder.keep(epoch.reconstructions.examples())
                    recorder.say(result.line())
                    progress.end_epoch(result)
            except NonFiniteError as error:
                raise diverged(experiment.optimizer, str(error)) from error
            interruption.end(save(progress, recorder, checkpoint, **facts))
    sent = (session.messages_per_row, auditor.canaries, session.claims())
    return summarise(progress.results, skipped, experiment.defenses, data, *sent)


def train_epoch(
    epoch: Epoch, batches: Rounds, progress: Progress, settings: Settings, recorder: Recorder, interruption: Interruption
) -> None:
    """Every batch once; the audited ones are attacked right after their round, which changes nothing that follows.

    Goes on after the batches that an epoch under way has had, and leaves off after the one in which an interruption comes.
    Attacks that follow rows are asked at the end.
    """
    steps, number, auditor = len(batches), epoch.number, progress.auditor
    audited = set(evenly_spaced(steps, settings.audit.audited(steps)).tolist())
    start, audit_seconds = perf_counter(), 0.0
    with recorder.progress_bar(f"epoch {number}", steps * batches.batch_size) as bar:
        bar.update(epoch.step * batches.batch_size)
        for step, batch in islice(enumerate(batches), epoch.step, None):
            batch = auditor.canaries.plant(batch)
            watched = step in audited or auditor.follows
            transcript = auditor.transcript(batch, number, step) if watched else None
            outcome = progress.session.round(batch, transcript)
            if not math.isfinite(outcome.loss + outcome.penalty):
                raise NonFiniteError(f"the loss became {outcome.loss + outcome.penalty} at epoch {number}, step {step}")
            epoch.add(outcome)
            auditor.canaries.read(batch.ids, outcome.labels)
            for note in outcome.notes:
                recorder.log(f"epoch {number} step {step}/{steps} {note}")
            if transcript is not None:
                audit_start = perf_counter()
                auditor.observe(transcript, batch)
                if step in audited:
                    auditor.attack(transcript, batch, epoch.leaks, epoch.reconstructions)
                    if settings.audit.dcor:
                        auditor.measure(transcript, batch, epoch.dependence)
                audit_seconds += perf_counter() - audit_start
            if step % settings.log_every == 0:
                recorder.log(f"epoch {number} step {step}/{steps} loss: {outcome.loss:.4f}")
            bar.set_postfix_str(f"loss {outcome.loss:.4f}", refresh=False)
            bar.update(len(batch))
            if interruption.asked:
                break
    if not interruption.asked:
        audit_start = perf_counter()
        auditor.conclude(number, steps, epoch.leaks, epoch.reconstructions)
        audit_seconds += perf_counter() - audit_start
    epoch.seconds["audit"] += audit_seconds
    epoch.seconds["train"] += perf_counter() - start - audit_seconds
