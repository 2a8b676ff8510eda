"""The story of one run, top to bottom."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import torch
from torch import Tensor

from vflbench.data.rows import EncodedRows, ordered_batches
from vflbench.data.table import VerticalTable
from vflbench.errors import NonFiniteError, UserError
from vflbench.files import in_a_line
from vflbench.generators import Generators
from vflbench.messages.serialize import PartyError
from vflbench.metrics.utility import model_utility
from vflbench.protocols.base import Rounds, Session
from vflbench.results.folder import HONEST
from vflbench.results.recorder import Recorder
from vflbench.results.schema import Summary
from vflbench.run.attackers import remembered
from vflbench.run.checkpoint import Checkpoint, UnusableCheckpointError
from vflbench.run.grade_scores import Findings
from vflbench.run.interruption import Interruption
from vflbench.run.settings import choose_device, tune
from vflbench.run.setup import BuiltRun, Epoch, Experiment, build_run
from vflbench.run.summary import EpochResult, epoch_rows, exceeded_ceilings, introduce, run_facts, summarise

__all__ = ["Experiment", "run_experiment"]


def run_experiment(experiment: Experiment, recorder: Recorder, checkpoint: Checkpoint) -> Summary:
    """Load, build the parties, train and attack epoch by epoch, record it. Returns the summary.

    Resumes from the checkpoint. Raises Interrupted after Ctrl-C or SIGTERM, when the batch in hand is done and saved. Where
    a party cheats, the honest run is made afterwards, in a folder of its own within the run's.
    """
    try:
        with recorder.meter.running(shown=recorder.bar):
            summary = train_and_attack(experiment, recorder, checkpoint)
    except UnusableCheckpointError as error:
        recorder.say(f"{error}; starting from the beginning", always=True)
        checkpoint.path.unlink(missing_ok=True)
        return run_experiment(experiment, recorder, checkpoint)
    except (UserError, OSError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # the file that the run has gone on from may be at fault, or the code
        if not checkpoint.gone_on:
            raise
        problem = (
            f"the run failed after it had gone on from {checkpoint.path} ({type(error).__name__}: {in_a_line(error, 200)}); "
            "the traceback is in error.txt; overwrite=true begins anew, where the file may be another's or damaged"
        )
        raise UserError(problem, key="checkpoint", value=checkpoint.wanted) from error
    if experiment.adversaries:
        summary.honest = honest_run(experiment, recorder, checkpoint)
    return summary


def honest_run(experiment: Experiment, recorder: Recorder, checkpoint: Checkpoint) -> Summary:
    """Figures of the run beside this one in which no party cheats."""
    sibling = recorder.sibling(HONEST, adversary={})
    summary = sibling.earlier_summary()
    if summary is None:
        saved = Checkpoint(sibling.folder, checkpoint.wanted, fresh=checkpoint.fresh or not sibling.is_of_same_origin)
        summary = run_experiment(experiment.honest, sibling, saved)
        sibling.finish(summary)
        saved.finish()
    return Summary(test_auc=summary.test_auc, leak_auc_two_sided=summary.leak_auc_two_sided)


def train_and_attack(experiment: Experiment, recorder: Recorder, checkpoint: Checkpoint) -> Summary:
    settings, generators = experiment.settings, Generators(experiment.settings.seed, experiment.secret)
    device, machine = choose_device(settings.device), tune()
    data = experiment.dataset.load(generators["data"]).to(device)
    run = build_run(experiment, data, generators, recorder.folder)
    threads, batch_size, epochs = torch.get_num_threads(), run.auditor.group, run.epochs
    facts = {"device": str(device), "machine": machine | {"threads": threads}, "threads": threads, "batch_size": batch_size}
    run.facts = facts | run_facts(run)
    session, auditor = run.session, run.auditor
    auditor.meter = recorder.meter
    begin_or_go_on(run, recorder, checkpoint)
    recorder.say(f"{introduce(data, session.columns)}; batches of {batch_size} on {device}")
    for line in data.facts.get("columns_are", ()):  # of a table of one's own: once, and not by each run of a sweep
        recorder.say(line, always=recorder.bar)
    for line in run.notes:
        recorder.say(line, always=True)

    tables: dict[str, VerticalTable | EncodedRows] = {"train": data.train.sample(settings.audit.train_rows), **data.held_out}
    with Interruption() as interruption:
        while len(run.results) < epochs and not session.stopped:
            number = len(run.results)
            epoch = run.epoch = run.epoch or Epoch(number, generators["batches"].get_state())
            batches = session.batches(data.train, batch_size, generators["batches"], number)
            try:
                findings = train_epoch(run, batches, recorder, interruption, after=epochs - number - 1)
                if findings is not None:
                    result = evaluate(epoch.result(), run, tables)
                    result.findings = replace(findings, examples={})
                    recorder.write(epoch_rows(result))
                    recorder.keep(findings.examples)
                    recorder.say(result.line(epochs))
                    run.rounds.note_model(result.utility)
                    run.results.append(result)
                    run.epoch = None
                    recorder.write_losses(line for each in run.results for line in each.loss_lines())
            except NonFiniteError as error:
                raise diverged(run, str(error)) from error
            interruption.end(save(run, recorder, checkpoint))
    unscored = auditor.unscored(run.results[-1].findings)
    for name, reason in unscored.items():
        recorder.say(f"attack={name} could not be scored: {reason}", always=name in experiment.attacks)
    summary = summarise(run, unscored)
    recorder.note(unscored=unscored, exceeded=exceeded_ceilings(summary.guarantees))
    return summary


def train_epoch(
    run: BuiltRun, batches: Rounds, recorder: Recorder, interruption: Interruption, *, after: int
) -> Findings | None:
    """Every batch once. The audited ones are attacked right after their round, which changes nothing that follows.

    Resumes after the batches that an epoch under way has had. Returns None if it was interrupted. after: epochs that follow.
    """
    assert run.epoch is not None
    epoch, number, steps, first = run.epoch, run.epoch.number, len(batches), len(run.epoch.losses)
    auditor, session, rounds = run.auditor, run.session, run.rounds
    auditor.begin_epoch(number, steps, last=not after)
    rounds.begin_epoch(number, steps, goes_on=first > 0)
    meter = recorder.meter
    meter.epoch(number, number + 1 + after, batches=(after + 1) * steps - first, seconds=epoch.seconds)
    findings = None
    with meter.phase("train", "training"):
        for step, ids in islice(enumerate(batches), first, None):
            round_ = session.round(ids, epoch=number, step=step, watch=auditor.wants(step) | rounds.wants(step))
            training = round_.training
            if training is None or not math.isfinite(training.loss + training.penalty):
                loss = math.nan if training is None else training.loss + training.penalty
                raise NonFiniteError(f"the loss became {loss} at epoch {number}, step {step}")
            epoch.losses.append(training.loss)
            epoch.penalties.append(training.penalty)
            meter.bar.update()
            with meter.phase("audit", "attacking a batch" if step in auditor.audited else "training"):
                auditor.see(round_)
                rounds.see(round_)
            for note in training.notes:
                recorder.log(f"epoch {number} step {step}/{steps} {note}")
            if step % run.experiment.settings.log_every == 0:
                recorder.log(f"epoch {number} step {step}/{steps} loss: {training.loss:.4f}")
            if interruption.asked or session.stopped:
                break
        if not interruption.asked:
            with meter.phase("audit", "attacking at its end"):
                wanted = auditor.wants_at_the_end | rounds.wants_at_the_end
                parts = auditor.parts_at_the_end
                facts = remembered(session.facts(torch.cat(parts[:2]), wanted), parts) if wanted else {}
                rounds.end_epoch(number, facts)
                findings = auditor.end_epoch(facts)
    return findings


def evaluate(result: EpochResult, run: BuiltRun, tables: Mapping[str, VerticalTable | EncodedRows]) -> EpochResult:
    """Utility of the model on train and test rows, and the traffic over the wire."""
    session, meter = run.session, run.auditor.meter
    result.note_traffic("train", session.wire.take_traffic())
    result.figures = session.figures()
    for split, table in tables.items():
        with meter.phase(f"{split}_prediction", "measuring the model"):
            logits, labels = predict(session, table)
            if not logits.isfinite().all():
                raise NonFiniteError(f"a prediction is not a finite number after epoch {result.epoch}")
            result.utility[split] = model_utility(logits, labels)
        result.note_traffic(f"{split}_prediction", session.wire.take_traffic())
    return result


def predict(session: Session, table: VerticalTable | EncodedRows) -> tuple[Tensor, Tensor]:
    """Logits and labels of every row, in order."""
    scored = [(session.predict(batch.ids), batch.labels) for batch in ordered_batches(table, 8192)]
    logits, labels = zip(*scored, strict=True)
    return torch.cat(logits), torch.cat(labels)


def begin_or_go_on(run: BuiltRun, recorder: Recorder, checkpoint: Checkpoint) -> None:
    """Raises UserError where resuming would mix two runs, UnusableCheckpointError, perhaps with the run half restored."""
    state, device = checkpoint.load(), run.facts["device"]
    if state is None:
        recorder.begin(**run.facts)
        return
    if state.get("data") != run.data.fingerprint:
        raise UserError(
            f"the data is no longer what this run was trained on until it stopped, so it can't go on; bring the former data "
            f"back, or begin anew with overwrite=true ({checkpoint.path})",
            key="dataset",
        )
    if state.get("device") != device:
        problem = f"this run was begun on {state.get('device')} and can only go on there; overwrite=true begins it anew"
        raise UserError(problem, key="device", value=device)
    try:
        if not recorder.ends_a_line(state["metrics_bytes"]):
            raise UnusableCheckpointError(f"{checkpoint.path.name} is of a run with another metrics.csv")
        run.restore(state)
    except (UnusableCheckpointError, PartyError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # whatever a state that does not fit does to those it is given to
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UnusableCheckpointError(f"{checkpoint.path.name} does not fit this run ({reason})") from error
    checkpoint.gone_on = True
    recorder.go_on(state["metrics_bytes"], str(run), **run.facts)


def save(run: BuiltRun, recorder: Recorder, checkpoint: Checkpoint) -> str:
    """Write the checkpoint. Returns a message for a user who stops the run here."""
    place = {"data": run.data.fingerprint, "device": run.facts["device"], "metrics_bytes": recorder.length}
    known = checkpoint.refused
    if checkpoint.wanted != "none" and checkpoint.save({**place, **run.state()}):
        command = "the same command without overwrite=true" if checkpoint.fresh else "the same command"
        return f"stopped before {run}, and saved; {command} goes on from there ({recorder.folder})"
    why = "checkpoint=none saves nothing to go on from"
    if checkpoint.refused is not None:
        why = f"no checkpoint can hold {checkpoint.refused}"
    if checkpoint.refused != known:
        recorder.say(f"this run can't go on if it stops: {why}", always=True)
    return f"stopped before {run}; {why} ({recorder.folder})"


def diverged(run: BuiltRun, problem: str) -> UserError:
    """The error for a run that met a number that is not finite: names the options that decide the size of a step."""
    experiment = run.experiment
    room = "protocol" if hasattr(experiment.protocol, "rate") else "optimizer"
    options = vars(getattr(experiment, room)).items()
    steps = [f"{room}.{name}={value}" for name, value in options if isinstance(value, float)]
    steps += [f"defense={name}" for name in experiment.defenses]
    problem = f"{problem}; what decides the size of a step is {', '.join(steps)}. Completed epochs are in metrics.csv"
    return UserError(problem, key=room)
