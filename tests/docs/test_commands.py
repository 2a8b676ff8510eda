"""Every command of README and docs is run, small: a page's commands in order, in a folder of its own."""

import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf
from support import doc_files, warm_command
from support.doc_commands import ROOT, Command, File, few_runs, first_value, pages, read_page, small

import vflbench.cli.config  # noqa: F401
from vflbench.files import config_folder

PAGES = {page: read_page(page, (ROOT / page).read_text("utf-8")) for page in pages()}
NOT_RUN = {
    r"^(python3 -m venv|pip |pre-commit|pytest|bash \.ci/run)": "what .ci/run does in a fresh environment",
    r"scripts/bench\.py": "measures for minutes; tests/scripts/test_bench.py runs it small",
    r"scripts/make_criteo\.py": "gigabytes; the files of this test are made by it",
    r"hydra/launcher=submitit_slurm": "a cluster; tests/cli has doubles of it",
    r"engine=nvflare": "half a minute each; tests/engines runs it",
    r"^vflbench train attack=loudest$": "a file in the package; tests/docs/test_extending.py runs the same class",
    r"vflbench parties|^mkdir alice": "servers and certificates; tests/engines/test_provisioned.py runs them",
}
"""Pattern of commands -> why they are not run here. Each must be needed."""
FORM = re.compile(r"\.\.\.|\b(?:NAME|FILE|FOLDER|DIR|RUN|RUNS|BY|DATA|PEERS|HEAD|KEY|VALUE|RECORDING|OUT|LABELS|GROUP)\b")
"""A command with one of these words is a form to fill in."""


def reason(command: Command) -> str:
    """Why it is not run; empty if it is."""
    why = next((why for pattern, why in NOT_RUN.items() if re.search(pattern, command.text)), "")
    return why or ("a form" if FORM.search(" ".join(command.words)) else "")


def commands(page: str) -> list[Command]:
    return [entry for entry in PAGES[page] if isinstance(entry, Command)]


def test_every_reason_is_needed():
    texts = [command.text for page in PAGES for command in commands(page)]
    assert not [pattern for pattern in NOT_RUN if not any(re.search(pattern, text) for text in texts)]
    assert len(texts) > 200


@pytest.fixture(scope="session")
def shelf(tmp_path_factory) -> Path:
    """Files under the names that the pages use, and a recording."""
    folder = tmp_path_factory.mktemp("shelf")
    doc_files.write_all(folder)
    words = ["train", "attack=norm", "record=messages", "hydra.run.dir=run", "epochs=1", "batch_size=64", "dataset.rows=400"]
    made = warm_command.command(*words, "model.width=16", "dataset.vocabulary=200", "audit.probe=false", cwd=folder)
    assert made.returncode == 0, made.stderr
    return folder


RUN = [page for page in PAGES if any(not reason(command) for command in commands(page))]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_commands(page, shelf, tmp_path):
    prepare(page, shelf, tmp_path)
    for number, entry in enumerate(PAGES[page]):
        if isinstance(entry, File):
            (tmp_path / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / entry.path).write_text(entry.text)
        elif not reason(entry) and not runs_elsewhere(entry, PAGES[page][number + 1 :]):
            done = run(entry, tmp_path, shelf)
            output = f"{shlex.join(done.args)}\n{done.stdout[-500:]}\n{done.stderr[-2000:]}"
            allowed = (0, 2) if "--fail-above" in entry.text else (0,)
            assert done.returncode in allowed, f"{page}, line {entry.line}: {entry.text}\n{output}"


def runs_elsewhere(command: Command, later: list[Command | File]) -> bool:
    """Whether an earlier page has the same training, of which nothing that follows here reads the results."""
    first = next(page for page in PAGES for one in commands(page) if one.words == command.words)
    following = [one.words[1:2] for one in (command, *later) if isinstance(one, Command)]
    return first != command.page and set(following) == {("train",)}


def prepare(page: str, shelf: Path, folder: Path) -> None:
    """What the reader of a page has before it begins."""
    for file in shelf.iterdir():
        if file.name != "run":
            (folder / file.name).symlink_to(file)
    (folder / "docs").symlink_to(ROOT / "docs")
    recorded = shelf / "run" / "recording"
    apart = ("apart/recording", "apart/parties/a/recording", "apart/parties/b/recording")
    for name in ("recorded", "defended", "parties/a/recording", "theirs/recorded", *apart):
        shutil.copytree(recorded, folder / name)
    if any(command.words[1:2] == ("grade",) for command in commands(page)):
        (folder / "labels.parquet").unlink()
        shutil.copy(recorded / "labels.parquet", folder)
    shutil.copy(shelf / "run" / "config.yaml", folder / "theirs")
    for name in ("theirs/run", "outputs/a/run", "outputs/b/run"):
        shutil.copytree(shelf / "run", folder / name, ignore=shutil.ignore_patterns("recording"))
    if "mypkg" in (ROOT / page).read_text("utf-8"):
        doc_files.example("own_modules", folder / "mine" / "mypkg")
    if page == "docs/howto/reports.md":
        shutil.copytree(folder / "theirs" / "run", folder / "mine" / "run")


def run(command: Command, folder: Path, shelf: Path) -> subprocess.CompletedProcess:
    program, *words = before_pipe(command.words)
    words = [path for word in words for path in globbed(word, folder)]
    environment = {**warm_command.OPEN, "VFLBENCH_DATA": str(shelf), "BROWSER": "true", "COLUMNS": "80"}
    environment[warm_command.SMALL_JUDGE] = "1"
    if program.startswith("python"):
        return script(words, folder)
    if words[:2] == ["reproduce", "no_defense"]:
        words = [*words, "--draws", "1"]  # the last one counts
    if words[0] == "audit" and not any(word.startswith(("attack=", "--describe")) for word in words):
        words = [*words, "attack.model_completion.steps=3"]  # half of the time of all attacks
    if words[0] == "report" and not {"--figures", "--export", "--help"} & set(words):
        words = [*words, "--figures", "none"]  # files of three formats, of the figures that are on the page
    if words[0] != "train" or {"--help", "--cfg", "-h"} & set(words):
        return warm_command.run(words, folder, environment, warm_command.FEW_CANDIDATES)
    for runs in few_runs(words[1:], compared(command.page)):
        changed = [*runs, *small(runs, config(runs, folder, environment))]
        done = warm_command.run(["train", *changed], folder, environment, warm_command.FEW_CANDIDATES)
        if done.returncode:
            break
    return done


def compared(page: str) -> set[str]:
    """The options that the page's reports compare."""
    reports = [command.words for command in commands(page) if command.words[:2] == ("vflbench", "report")]
    return {key for words in reports for before, keys in pairwise(words) if before == "--by" for key in keys.split(",")}


def before_pipe(words: tuple[str, ...]) -> tuple[str, ...]:
    stops = [place for place, word in enumerate(words) if word in ("|", "&&", ">", ";")]
    return words[: min(stops, default=len(words))]


def globbed(word: str, folder: Path) -> list[str]:
    """What a shell makes of outputs/x_*/recording."""
    if "*" not in word or "=" in word:
        return [word]
    return sorted(str(path.relative_to(folder)) for path in folder.glob(word)) or [word]


def script(words: list[str], folder: Path) -> subprocess.CompletedProcess:
    if words[0].startswith("scripts/"):
        words = [str(ROOT / words[0]), *words[1:]]
    call = [sys.executable, *words]
    return subprocess.run(call, cwd=folder, capture_output=True, text=True, timeout=300, env=warm_command.OPEN)


def config(words: list[str], folder: Path, environment: dict[str, str]) -> dict:
    """The config of the first of these runs, composed here where nothing of others is needed, else by the command."""
    first = [first_value(word) for word in words if word != "-m"]
    if not any(word.startswith("--") for word in first):
        try:
            with initialize_config_dir(str(config_folder()), version_base="1.3"):
                return OmegaConf.to_container(compose("train", [*first, "name=x"]), resolve=False)
        except HydraException:
            pass  # the command says it better
    shown = warm_command.run(["train", *first, "--cfg", "job"], folder, environment)
    assert shown.returncode == 0, f"{shlex.join(words)}\n{shown.stderr}"
    return yaml.safe_load(shown.stdout)
