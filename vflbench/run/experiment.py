"""The story of one run, top to bottom."""

import math
from itertools import islice
from time import perf_counter
from typing import Any

from vflbench.errors import NonFiniteError
from vflbench.generators import Generators
from vflbench.protocols.base import Rounds
from vflbench.results.files import HONEST
from vflbench.results.notices import is_new
from vflbench.results.recorder import Recorder
from vflbench.results.schema import Honest, Summary
from vflbench.run.checkpoint import Checkpoint, UnusableCheckpointError
from vflbench.run.divergence import diverged
from vflbench.run.evaluation import evaluate
from vflbench.run.facts import introduce, quantities
from vflbench.run.findings import Findings
from vflbench.run.interruption import Interruption
from vflbench.run.machine import set_threads, tune
from vflbench.run.metric_rows import epoch_rows
from vflbench.run.progress import Epoch, Progress
from vflbench.run.resume import begin_or_go_on, blaming, save
from vflbench.run.settings import Settings, choose_device
from vflbench.run.setup import Experiment, seat
from vflbench.run.summary import summarise
from vflbench.run.verdict import exceeded_ceilings

__all__ = ["Experiment", "run"]


def run(experiment: Experiment, recorder: Recorder, checkpoint: Checkpoint) -> Summary:
    """Load, seat the parties, train and attack epoch by epoch, record it. Returns the summary.

    Resumes from the checkpoint. Raises Interrupted after Ctrl-C or SIGTERM, when the batch in hand is done and saved. Where
    a party cheats, the honest run is made afterwards, in a folder of its own within the run's.
    """
    try:
        with blaming(checkpoint), recorder.meter.running():
            summary = train_and_attack(experiment, recorder, checkpoint)
    except UnusableCheckpointError as error:
        recorder.say(f"{error}; starting from the beginning", always=True)
        checkpoint.discard()
        return run(experiment, recorder, checkpoint)
    if experiment.adversaries:
        summary = summary.model_copy(update={"honest": honest_run(experiment, recorder, checkpoint)})
    return summary


def honest_run(experiment: Experiment, recorder: Recorder, checkpoint: Checkpoint) -> Honest:
    """Figures of the run beside this one in which no party cheats."""
    beside = recorder.beside(HONEST, adversary={})
    summary = beside.earlier_summary()
    if summary is None:
        saved = checkpoint.beside(HONEST, same=beside.is_of_same_origin)
        summary = run(experiment.honest, beside, saved)
        beside.finish(summary)
        saved.finish()
    return Honest(test_auc=summary.test_auc, leak_auc_two_sided=summary.leak_auc_two_sided)


def train_and_attack(experiment: Experiment, recorder: Recorder, checkpoint: Checkpoint) -> Summary:
    settings, generators = experiment.settings, Generators(experiment.settings.seed, experiment.secret)
    meter = recorder.meter
    device, machine = choose_device(settings.device), tune()
    data = experiment.dataset.load(generators["data"]).to(device)
    batch_size = experiment.protocol.round_size(settings.batch_size, data)
    epochs = experiment.protocol.choose_epochs(settings.epochs, data)
    machine["threads"] = set_threads(batch_size, experiment.model.width)
    seated = seat(experiment, data, generators, batch_size, epochs, recorder.folder)
    session, auditor, skipped = seated.session, seated.auditor, seated.skipped
    progress = Progress(generators, session, auditor, seated.rounds)
    facts: dict[str, Any] = {"device": str(device), "machine": machine, "batch_size": batch_size}
    facts["threads"] = machine["threads"]
    facts |= seated.facts(experiment, data)
    begin_or_go_on(progress, recorder, checkpoint, **facts)
    recorder.say(f"{introduce(data, session.columns)}; batches of {batch_size} on {device}")
    for line in data.facts.get("columns_are", ()):  # of a table of one's own: once, and not by each run of a sweep
        recorder.say(line, always=recorder.bar)
    left_out = [f"attack={name} is skipped: {reason}" for name, reason in skipped.items()]
    for line in (*data.notes, *seated.lines(experiment), *left_out):
        recorder.say(line, always=is_new(line))

    sample = data.train.sample(settings.audit.train_rows)
    with Interruption(experiment.engine.stop_asked) as interruption:
        while len(progress.results) < epochs and not session.stopped:
            epoch = progress.begin_epoch()
            batches = session.batches(data.train, batch_size, generators["batches"], epoch.number)
            try:
                after = epochs - epoch.number - 1
                findings = train_epoch(epoch, batches, progress, settings, recorder, interruption, after=after)
                if findings is not None:
                    meter.doing("measuring the model")
                    result = evaluate(epoch.result(findings), progress, {"train": sample, **data.held_out})
                    recorder.write(epoch_rows(result))
                    recorder.keep(findings.examples)
                    recorder.say(result.line(), shown=result.short_line(epochs))
                    progress.end_epoch(result)
                    recorder.write_losses(line for each in progress.results for line in each.loss_lines())
                    meter.ended()
            except NonFiniteError as error:
                raise diverged(experiment, data, seated.trace, str(error)) from error
            interruption.end(save(progress, recorder, checkpoint, **facts))
    last = progress.results[-1]
    unscored = auditor.unscored(last.leaks, last.reconstructions)
    for name, reason in unscored.items():
        recorder.say(f"attack={name} could not be scored: {reason}", always=name in experiment.attacks)
    recorder.note(unscored=unscored, quantities=quantities(last))
    sent = (session.messages_per_row, seated.canaries, session.claims())
    joining = [name for name, attack in experiment.attacks.items() if attack.follows]
    mixing = [name for name, attack in experiment.attacks.items() if attack.threat.mixes_messages]
    made = (progress.results, skipped, unscored, experiment.defenses, data, *sent)
    beside = {"threats": facts["threats"], "joining": joining, "mixing": mixing, "crossing": facts["cut_layers"]}
    summary = summarise(*made, **beside, stopped=session.stopped)
    recorder.note(exceeded=exceeded_ceilings(summary.guarantees))
    return summary


def train_epoch(
    epoch: Epoch,
    batches: Rounds,
    progress: Progress,
    settings: Settings,
    recorder: Recorder,
    interruption: Interruption,
    *,
    after: int,
) -> Findings | None:
    """Every batch once. The audited ones are attacked right after their round, which changes nothing that follows.

    Resumes after the batches that an epoch under way has had. Returns None if it was interrupted. after: epochs that follow.
    """
    steps, number, auditor, session = len(batches), epoch.number, progress.auditor, progress.session
    auditor.begin_epoch(number, steps, last=not after)
    progress.rounds.begin_epoch(number, steps, auditor.audited, goes_on=epoch.step > 0)
    start, meter = perf_counter(), recorder.meter
    audits = sum(step >= epoch.step for step in auditor.audited) + settings.audit.in_epochs(after, steps)
    meter.epoch(number, number + 1 + after, batches=(after + 1) * steps - epoch.step, audits=audits)
    for step, ids in islice(enumerate(batches), epoch.step, None):
        watch = auditor.wants(step) | progress.rounds.wants(step)
        round_ = session.round(ids, epoch=number, step=step, watch=watch)
        training = round_.training
        if training is None or not math.isfinite(training.loss + training.penalty):
            loss = math.nan if training is None else training.loss + training.penalty
            raise NonFiniteError(f"the loss became {loss} at epoch {number}, step {step}")
        epoch.add(training)
        with meter.audit(counts=step in auditor.audited):
            auditor.see(round_)
            progress.rounds.see(round_)
        for note in training.notes:
            recorder.log(f"epoch {number} step {step}/{steps} {note}")
        if step % settings.log_every == 0:
            recorder.log(f"epoch {number} step {step}/{steps} loss: {training.loss:.4f}")
        if interruption.asked or session.stopped:
            break
    findings = None
    if not interruption.asked:
        with meter.audit_at_the_end():
            findings = auditor.end_epoch(progress.facts_at_the_end(number))
    epoch.seconds["audit"] += meter.audit_seconds
    epoch.seconds["train"] += perf_counter() - start - meter.audit_seconds
    return findings
