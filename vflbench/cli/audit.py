"""`vflbench audit RECORDING`: attack recorded messages, and say what they give away."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from vflbench.cli.plugins import FLAG as PLUGINS
from vflbench.cli.plugins import split_plugins, use_plugins
from vflbench.cli.quoting import split_word
from vflbench.cli.words import Words
from vflbench.errors import UserError
from vflbench.results.files import METRICS
from vflbench.results.gate import FLAG, KEYS, Gate

_DESCRIPTION = """Attack what a party has recorded of the messages that crossed the cut.

Options:
  'attack=[norm,cosine]'    chooses attacks. Without it, all of `vflbench list
                            attack`; those that need what the recording lacks
                            are left out, with the reason
  attack.cosine.k=3         sets their options
  seed=1                    the seed of the attacks' generators
  audit.batches=20          how many batches of an epoch; or all, or auto
  audit.epochs=last         audits the last epoch only; or all
  audit.probe=false         leaves out the probe, a reference that knows labels
  overwrite=true            computes a finished audit again
  logger=[...], name=...    as in vflbench train

Exit code: 0; 1 if something went wrong; 2 if a threshold of --fail-above is
exceeded; 3 if none is, but one could not be judged: nothing has such a value,
or too few batches were audited to tell a coin from a leak."""


def audit(arguments: Sequence[str]) -> None:
    """The command. Ends with exit code 2 if a gate fails, 3 if one can't be judged."""
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
        place = words.index(wrong[0])
        if split := split_word(words[: place + 1], words[place + 1 :]):
            raise UserError(split, see="vflbench audit --help")
        problem = "it is no option: options are KEY=VALUE, and only one recording is audited at a time"
        raise UserError(problem, key=wrong[0], see="vflbench audit --help")
    placed = next(
        (word for word in options.options if word.lstrip("+").startswith(("hydra.run.dir=", "hydra.sweep."))), None
    )
    if placed:
        raise UserError(
            "the results of an audit go where --out says", key=placed.partition("=")[0], see="vflbench audit --help"
        )
    from vflbench.cli.audit_plan import absolute

    recording = absolute(options.recording)
    if not recording.is_dir():
        problem = "a recording is a folder, and this is a file" if recording.exists() else "there is no such folder"
        raise UserError(problem, key="recording", value=options.recording)
    if (recording / "recording").is_dir() and not (recording / "messages").is_dir():
        problem = f"it is the folder of a run; what it recorded is in {Path(options.recording) / 'recording'}"
        raise UserError(problem, key="recording", value=options.recording)
    if (recording / METRICS).is_file() and not (recording / "messages").is_dir():
        problem = (
            "it is the folder of a run without recorded messages; the same command with record=messages makes one with them"
        )
        raise UserError(problem, key="recording", value=options.recording)
    folders = use_plugins(named)
    labels = str(absolute(options.labels)) if options.labels else None
    if labels is not None and not Path(labels).is_file():
        raise UserError("there is no such file", key="--labels", value=options.labels)
    if options.describe and not (folders or options.require_all):
        from vflbench.cli.every_attack import chosen_attacks, every_attack

        chosen = chosen_attacks(options.options) if options.options else {}
        found = (chosen, {}) if chosen else None if options.options else every_attack()
        if found is not None:
            from vflbench.cli.describe import description

            print(description(recording, *found, labels=labels))
            return
    from vflbench.cli.audit_config import plan

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
    from vflbench.messages.recorded_messages import RecordedMessages

    messages = RecordedMessages(recording)  # before --out is looked at: what is no recording is said first
    folder = absolute(options.out) if options.out else Path("outputs").absolute() / made.folder_name
    if folder.is_relative_to(recording):
        raise UserError(
            "results must not lie in the recording, which would change it", key="--out", value=options.out or folder
        )
    from vflbench.cli.audit_folder import audit_and_report
    from vflbench.run.offline import audit as audit_messages

    audit_and_report(
        made,
        recording,
        lambda: audit_messages(messages, made.attacks, **asdict(made.wanted)),
        folder,
        gates,
        require_all=options.require_all,
    )


def parser() -> argparse.ArgumentParser:
    """The flags of the command, apart from --plugins DIR, which is read before."""
    form = argparse.RawDescriptionHelpFormatter
    made = Words(prog="vflbench audit", description=_DESCRIPTION, formatter_class=form, allow_abbrev=False)
    made.add_argument(
        "recording",
        metavar="RECORDING",
        help="a folder of recorded messages, as record=messages or vflbench.Recording writes it",
    )
    made.add_argument("options", nargs="*", metavar="KEY=VALUE", help="attacks and their options")
    made.add_argument(
        FLAG,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="end with exit code 2 if KEY of any attack, at any layer and in any epoch, is above VALUE, with 3 if that "
        "can't be judged; may be repeated. "
        f"KEY: {', '.join(KEYS)}",
    )
    made.add_argument(
        "--require-all", action="store_true", help="end with exit code 1 if an attack that attack= names could not run"
    )
    made.add_argument(
        "--describe", action="store_true", help="show what is in the recording and which attacks can run, and attack nothing"
    )
    made.add_argument("--scores-only", metavar="DIR", help="write scores for `vflbench grade` into DIR; needs no labels")
    made.add_argument(
        "--class-shares",
        metavar="S0,S1",
        help="with --scores-only: the shares of the classes, if attackers may know them, as 0.9,0.1",
    )
    made.add_argument("--labels", metavar="FILE", help="a file with labels, in place of those in the recording")
    made.add_argument("--out", metavar="DIR", help="the folder for the results; by default outputs/audit_...")
    made.add_argument(PLUGINS, metavar="DIR", help="a folder with attacks of your own; may be repeated")
    return made
