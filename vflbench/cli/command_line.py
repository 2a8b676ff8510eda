"""The command lines of `train`, `prepare`, `audit` and `grade`: what is read, and explained, before torch is loaded."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import hydra
from hydra.types import RunMode

from vflbench.cli.config import PLUGINS_FLAG as PLUGINS
from vflbench.cli.config import check_others, composed, others, read_config, searched, split_flag, use_plugins
from vflbench.cli.main import Judged, Words
from vflbench.errors import UserError, pip_install
from vflbench.files import config_folder


def train_command(arguments: Sequence[str]) -> None:
    """Let Hydra read the command line and call `train_one` once or, with -m, many times."""
    named, words = split_flag(arguments)
    use_plugins(named)
    sys.argv = ["vflbench train", *with_quoted_marks(with_privacy(words))]
    hand_over_to_hydra("vflbench.cli.train:train_one")


def hand_over_to_hydra(task: str, config: str = "train") -> None:
    """Hydra reads sys.argv, composes train.yaml or the config of that name, and calls `task` with it: MODULE:FUNCTION, which
    is imported only then. What configs of others may not set is refused before Hydra acts on it.
    """
    typed = hydra_words(sys.argv[1:], sys.argv[0])
    others[:] = [Path(os.path.abspath(folder)) for folder in (typed.config_path, typed.config_dir) if folder]
    overrides, name = typed.overrides, typed.config_name or config
    if Path(name).is_absolute() or ".." in Path(name).parts:
        problem = "it leads out of the folder of configs; give its own folder as --config-dir"
        raise UserError(problem, key="--config-name", value=name)
    if typed.config_name:
        overrides = [*_HYDRA_OPTIONS, *overrides]  # before the user's, so that those win
    for launcher, extra in _EXTRAS.items():
        package = f"hydra_plugins.hydra_{launcher.partition('_')[0]}_launcher"
        if f"hydra/launcher={launcher}" in overrides and find_spec(package) is None:
            raise UserError(f"it needs an extra: {pip_install(extra)}", key="hydra/launcher")
    if others:
        check_others(name, overrides)
    if typed.help:
        from vflbench.cli.help import options_text  # late: runs need none

        print(options_text(composed(name, overrides, RunMode.MULTIRUN), [config_folder(), *searched]))
        return
    sys.argv[1:] = [*overrides, *typed.flags]
    hydra.main(version_base="1.3", config_path=str(config_folder()), config_name=name)(resolve_name(task))()


_HYDRA_OPTIONS = (
    "hydra/job_logging=disabled",
    "hydra/hydra_logging=disabled",
    "hydra/launcher=processes",
    "hydra/sweeper=runs",
    "hydra.output_subdir=null",
    "hydra.job.name=vflbench",
    "hydra.run.dir=outputs/${name}_${digest:}",
    "hydra.sweep.dir=outputs",
    "hydra.sweep.subdir=${name}_${digest:}",
)
"""The hydra options of train.yaml, for a config of another name: the config.yaml of a finished run has none."""

_EXTRAS = {"joblib": "joblib", "submitit_local": "slurm", "submitit_slurm": "slurm"}
"""Launcher -> the extra without which it can't begin."""


def hydra_words(words: Sequence[str], command: str) -> argparse.Namespace:
    """The words of a command that Hydra reads: `overrides`, `flags` as Hydra takes them, and those that name configs or ask
    for help. Raises UserError for other flags.
    """
    parser = Words(prog=command, add_help=False)
    parser.set_defaults(flags=[])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--help", "-h", action="store_true")
    for name, short in (("config-path", "cp"), ("config-name", "cn"), ("config-dir", "cd")):
        parser.add_argument(f"--{name}", f"-{short}")
    for names in (("--run", "-r"), ("--multirun", "-m"), ("--shell-completion", "-sc"), ("--hydra-help",), ("--resolve",)):
        parser.add_argument(*names, dest="flags", action="append_const", const=names[0])
    kinds = [f"--info={kind}" for kind in ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")]
    of_config = [f"--cfg={part}" for part in ("job", "hydra", "all")]
    parser.add_argument("--package", "-p", dest="flags", action="append", type="--package={}".format)
    parser.add_argument("--cfg", "-c", dest="flags", action="append", type="--cfg={}".format, choices=of_config)
    info: dict[str, Any] = {"nargs": "?", "const": kinds[0], "choices": kinds, "type": "--info={}".format}
    parser.add_argument("--info", "-i", dest="flags", action="append", **info)
    return parser.parse_intermixed_args(list(words))


_NAMED = {"comma": ",", "semicolon": ";", "tab": "\t", r"\t": "\t", "bar": "|"}
_MARK = re.compile(
    rf"(\+{{0,2}}dataset\.(?:delimiter|decimal)=)([^\w\s'\"\\]|\t|{'|'.join(map(re.escape, _NAMED))})", re.ASCII
)


def with_quoted_marks(words: Sequence[str]) -> list[str]:
    """The same words with quotes around a delimiter or decimal mark: the shell took those that were typed, and to Hydra a
    bare comma is a list of nothing. The mark is one sign, or named in a word.
    """
    matches = [(word, _MARK.fullmatch(word)) for word in words]
    return [f"{match[1]}'{_NAMED.get(match[2], match[2])}'" if match else word for word, match in matches]


# Label DP as the YAML of MindSpore Federated has it

PRIVACY = "--privacy"


def with_privacy(words: Sequence[str]) -> list[str]:
    """A command line with `--privacy FILE` or `--privacy=FILE` replaced by the options that the file stands for. Other parts
    of it than `privacy` are not read. Raises UserError for a file of another shape, and where a defense is chosen besides.
    """
    files, rest = split_flag(words, PRIVACY, "a YAML file")
    if not files:
        return rest
    chosen = [word for word in rest if word.lstrip("+").partition("=")[0] in ("defense", "defense.label_dp.eps")]
    if chosen or len(files) > 1:
        problem = f"it chooses defense=label_dp and its eps, beside {(chosen or files[1:])[0]}; give one of them"
        raise UserError(problem, key=PRIVACY)
    content: Any = read_config(Path(os.path.expanduser(files[0])))[1]
    match content.get("privacy") if isinstance(content, dict) else None:
        case {"label_dp": {"eps": int(eps) | float(eps), **options}, **others} if not options and not others:
            return ["defense=label_dp", f"defense.label_dp.eps={float(eps)}", *rest]
    raise UserError("the shape is privacy: {label_dp: {eps: 1.0}}", key=PRIVACY, value=files[0])


# Audits

_EXIT_CODES = """

Exit code: 0; 1 if something went wrong; 2 if a threshold of --fail-above is
exceeded; 3 if none is, but one could not be judged: nothing has such a value,
or too few batches were audited to tell a coin from a leak."""
_AUDIT = f"""Attack what a party has recorded of the messages that crossed the cut. Several
recordings are audited one after the other.

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
  logger=[...], name=...    as in vflbench train{_EXIT_CODES}"""
_GRADE = f"""Grade the scores of `vflbench audit RECORDING --scores-only DIR` by labels. The
results are those of an audit of the recording with these labels, without the
probe and without attacks that need labels of each batch. No message is needed.{_EXIT_CODES}"""


def audit_command(arguments: Sequence[str]) -> None:
    """Attack recorded messages. Ends with exit code 2 if a gate fails, 3 if one can't be judged."""
    plugins, words = split_flag(arguments)
    parser = _parser("audit", "RECORDING ... [KEY=VALUE ...] [FLAGS]", _AUDIT)
    recorded = "folders of recorded messages, as record=messages or vflbench.Recording writes them, and options of attacks"
    parser.add_argument("words", nargs="*", metavar="KEY=VALUE", help=recorded)
    flags = {
        "--require-all": "end with exit code 1 if an attack that attack= names could not run",
        "--describe": "show what is in the recording and which attacks can run, and attack nothing",
    }
    for flag, text in flags.items():
        parser.add_argument(flag, action="store_true", help=text)
    values = {
        ("--scores-only", "DIR"): "write scores for `vflbench grade` into DIR; needs no labels",
        ("--class-shares", "S0,S1"): "with --scores-only: the shares of the classes, if attackers may know them, as 0.9,0.1",
        ("--labels", "FILE"): "a file with labels, in place of those in the recording",
        ("--out", "DIR"): "the folder for the results; by default outputs/audit_...",
        (PLUGINS, "DIR"): "a folder with attacks of your own; may be repeated",
    }
    for (flag, value), text in values.items():
        parser.add_argument(flag, metavar=value, help=text)
    options = parser.parse_intermixed_args(words, argparse.Namespace(say=print))

    from vflbench.cli.audit import HELP, audit_one, check_recording  # late: it loads torch, which --help does without
    from vflbench.cli.mistakes import split_word

    recordings = [word for word in options.words if Path(word).exists() or not ("=" in word or word.startswith("~"))]
    overrides = [word for word in options.words if word not in recordings]
    for word in recordings:
        place = words.index(word)
        if not Path(word).exists() and (split := split_word(words[: place + 1], words[place + 1 :])):
            raise UserError(split, see=HELP)
    if not recordings:
        raise UserError("it is missing: a folder of recorded messages", key="RECORDING", see=HELP)
    if len(recordings) > 1 and (options.out or options.scores_only):
        raise UserError("--out and --scores-only are for one recording", key=recordings[1], see=HELP)
    folders = use_plugins(plugins)
    codes = []
    for recording in [check_recording(word) for word in recordings]:
        try:
            audit_one(recording, overrides, folders, options)
        except Judged as ended:
            codes.append(int(ended.code or 0))
        except KeyboardInterrupt as error:
            raise KeyboardInterrupt("stopped; the same command begins this audit again") from error
    if codes:
        raise Judged(min(codes))


def grade_command(arguments: Sequence[str]) -> None:
    """Compare scores with labels, and write the usual folder. Exit codes: as of `vflbench audit`."""
    parser = _parser("grade", "DIR LABELS [FLAGS]", _GRADE)
    parser.add_argument("scores", metavar="DIR", help="the folder that `vflbench audit RECORDING --scores-only DIR` wrote")
    parser.add_argument("labels", metavar="LABELS", help="a Parquet file with the columns id and label")
    parser.add_argument("--out", metavar="DIR", help="the folder for the results; by default outputs/grade_...")
    parser.add_argument("--overwrite", action="store_true", help="grade again, although there are finished results")
    options = parser.parse_args(arguments)

    from vflbench.cli.audit import grade_scores  # late: it loads torch, which --help does without

    grade_scores(options)


def _parser(command: str, usage: str, description: str) -> Words:
    """Of a command with thresholds, --fail-above, in `gates`."""
    from vflbench.results.gate import GATE_FLAG, KEYS  # late: `train --help` does without the records of results

    form = argparse.RawDescriptionHelpFormatter
    parser = Words(
        f"vflbench {command}", f"vflbench {command} {usage}", description, formatter_class=form, allow_abbrev=False
    )
    text = (
        "end with exit code 2 if KEY of any attack, at any layer and in any epoch, is above VALUE, with 3 if that can't be "
        f"judged; may be repeated. KEY: {', '.join(KEYS)}"
    )
    parser.add_argument(GATE_FLAG, dest="gates", action="append", default=[], metavar="KEY=VALUE", help=text)
    return parser
