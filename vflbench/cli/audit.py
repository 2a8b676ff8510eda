"""`vflbench audit RECORDING`: attack recorded messages, and say what they give away."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from vflbench.cli.plugins import FLAG as PLUGINS
from vflbench.cli.plugins import split_plugins, use_plugins
from vflbench.errors import UserError
from vflbench.results.gate import FLAG, KEYS, Gate

_DESCRIPTION = """Attack what a party has recorded of the messages that crossed the cut.

Options: 'attack=[norm,cosine]' chooses attacks (without it, all of `vflbench list attack`; those that need what the
recording lacks are left out, with the reason), attack.cosine.k=3 sets their options, seed=1 the seed of their generators,
audit.batches=20|all|auto how many batches of an epoch, audit.epochs=all|last, audit.probe=false leaves out a reference,
overwrite=true computes a finished audit again, logger=[...] and name=... are as in vflbench train.

Exit code: 0; 1 if something went wrong or nothing could be judged; 2 if a threshold of --fail-above is exceeded."""


def audit(arguments: Sequence[str]) -> None:
    """The command. Ends with exit code 2 if a gate fails."""
    try:
        obey(arguments)
    except KeyboardInterrupt as error:
        raise KeyboardInterrupt("stopped; the same command begins this audit again") from error


def obey(arguments: Sequence[str]) -> None:
    """Do what the words ask for."""
    named, words = split_plugins(arguments)
    options = parser().parse_intermixed_args(words)
    gates = [Gate.parse(text) for text in options.fail_above]
    wrong = [word for word in options.options if "=" not in word and not word.startswith("~")]
    if wrong:
        problem = "it is no option: options are KEY=VALUE, and only one recording is audited at a time"
        raise UserError(problem, key=wrong[0], see="vflbench audit --help")
    placed = next(
        (word for word in options.options if word.lstrip("+").startswith(("hydra.run.dir=", "hydra.sweep."))), None
    )
    if placed:
        raise UserError(
            "the results of an audit go where --out says", key=placed.partition("=")[0], see="vflbench audit --help"
        )
    from vflbench.cli.audit_config import absolute, plan

    recording = absolute(options.recording)
    if not recording.is_dir():
        problem = "a recording is a folder, and this is a file" if recording.exists() else "there is no such folder"
        raise UserError(problem, key="recording", value=options.recording)
    folders = use_plugins(named)
    labels = str(absolute(options.labels)) if options.labels else None
    if labels is not None and not Path(labels).is_file():
        raise UserError("there is no such file", key="--labels", value=options.labels)
    made = plan(recording, options.options, folders, labels)
    if options.require_all and not made.named:
        raise UserError("it needs the attacks that must run, as attack=[NAME,...]", key="--require-all")
    if options.describe:
        from vflbench.cli.describe import description

        print(description(recording, made.attacks, made.unusable, labels=labels))
        return
    if options.scores_only:
        from vflbench.cli.grade import scores_only

        print(scores_only(recording, made.attacks, made.wanted, absolute(options.scores_only), options.class_shares))
        return
    if options.class_shares:
        raise UserError("an audit with labels counts them itself; it goes with --scores-only", key="--class-shares")
    folder = absolute(options.out) if options.out else Path("outputs").absolute() / made.folder_name
    if folder.is_relative_to(recording):
        raise UserError(
            "results must not lie in the recording, which would change it", key="--out", value=options.out or folder
        )
    from vflbench.cli.audit_folder import audit_and_report
    from vflbench.messages.recorded_messages import RecordedMessages
    from vflbench.run.audited import audit_recording

    messages = RecordedMessages(recording)
    audit_and_report(
        made,
        recording,
        lambda: audit_recording(messages, made.attacks, made.wanted),
        folder,
        gates,
        require_all=options.require_all,
    )


class Words(argparse.ArgumentParser):
    """What it refuses ends in one paragraph."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message, see=f"{self.prog} --help")


def parser() -> argparse.ArgumentParser:
    """The flags of the command, apart from --plugins DIR, which is read before."""
    form = argparse.RawDescriptionHelpFormatter
    made = Words(prog="vflbench audit", description=_DESCRIPTION, formatter_class=form, allow_abbrev=False)
    made.add_argument("recording", metavar="RECORDING", help="a folder of recorded messages: docs/audit/format.md")
    made.add_argument("options", nargs="*", metavar="KEY=VALUE", help="attacks and their options")
    made.add_argument(
        FLAG,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help=f"end with exit code 2 if any attack, layer and epoch has more; may be repeated; {', '.join(KEYS)}",
    )
    made.add_argument(
        "--require-all", action="store_true", help="end with exit code 1 if an attack of attack= could not run"
    )
    made.add_argument(
        "--describe", action="store_true", help="show what is in it and which attacks can run, and attack nothing"
    )
    made.add_argument("--scores-only", metavar="DIR", help="write scores for `vflbench grade`; needs no labels")
    made.add_argument(
        "--class-shares", metavar="S0,S1", help="with --scores-only: shares of the classes, where they may be known: 0.9,0.1"
    )
    made.add_argument("--labels", metavar="FILE", help="labels in place of those in the recording")
    made.add_argument("--out", metavar="DIR", help="the folder for the results; by default outputs/audit_...")
    made.add_argument(PLUGINS, metavar="DIR", help="a folder with attacks of your own; may be repeated")
    return made
