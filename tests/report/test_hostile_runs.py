"""A report on folders that others made: nothing runs, nothing is written elsewhere, and one bad run is a line."""

import html
import io
import json
import os
import re
import shutil
import stat
import zipfile

import pytest
from hostile_runs import BOMB, EVIL, TEXTS, deep, faults
from outputs_tree import FACTS, leak, marvell, sweep, write_adversarial_run, write_run

from vflbench.cli.report import report
from vflbench.errors import UserError
from vflbench.report.charts import files
from vflbench.report.page import Wishes, write_report
from vflbench.results.folder import ERROR
from vflbench.results.runs import read_run


@pytest.fixture(autouse=True)
def without_png(monkeypatch):
    monkeypatch.setattr("vflbench.report.charts.files", lambda figure, *_: files(figure, ("svg",)))


def reported(root, out):
    page = write_report([root], out)
    assert faults(page) == []
    return page.read_text()


def changed(folder, name, **values):
    """The JSON file with other values."""
    content = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(content | values))
    return folder


def tree(folder):
    return {path.relative_to(folder).as_posix(): path.lstat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_a_name_of_an_experiment_is_no_path(tmp_path):
    root = tmp_path / "a" / "b" / "outputs"
    names = (
        "../../escaped",
        "../../../../../../tmp/escaped",
        "/tmp/escaped",
        "..",
        ".",
        "-rf",
        "a/b\\c",
        "x" * 5000,
        "\n",
        EVIL,
    )
    for seed, name in enumerate(names):
        write_run(root / str(seed), experiment=name, seed=seed)
    before = tree(tmp_path)
    assert "10 finished runs" in reported(root, root / "report")
    new = [path for path in tree(tmp_path) if path not in before]
    assert len(new) > 30
    assert all(path.startswith("a/b/outputs/report") for path in new), new


@pytest.mark.slow
def test_two_names_that_make_the_same_file_have_two(tmp_path):
    for number, name in enumerate(("a/b", "a?b", "A_b")):
        write_run(tmp_path / str(number), experiment=name, seed=number, test_auc=0.7 + 0.01 * number)
    reported(tmp_path, tmp_path / "report")
    tables = [file.read_text() for file in (tmp_path / "report" / "tables").glob("*_settings.csv")]
    assert sorted(re.search(r"none,1,([0-9.]+)", table)[1] for table in tables) == ["0.7", "0.71", "0.72"]


BAD_FILES = {
    "deep json": ("summary.json", deep(100_000)),
    "deep manifest": ("manifest.json", '{"a":' * 50_000),
    "5000 digits": ("summary.json", '{"test_auc": ' + "9" * 5000 + "}"),
    "a number as text": ("summary.json", '{"test_auc": "0.7"}'),
    "a list for a mapping": ("summary.json", '{"verdict": []}'),
    "a mapping for a list": ("summary.json", '{"leaks": {}}'),
    "true for a number": ("summary.json", '{"seconds": true}'),
    "not utf-8": ("summary.json", b'{"failed": "\xff"}'),
    "utf-16": ("manifest.json", '{"kind": "audit"}'.encode("utf-16")),
    "nul": ("config.yaml", b"a: \x00"),
    "a seed that is a list": ("config.yaml", "seed: [1, 2]\ndefense: {}"),
    "a data set that is a text": ("config.yaml", "dataset: criteo"),
    "itself": ("config.yaml", "a: &a [*a]\n"),
    "itself as a key": ("config.yaml", "&a {a: *a}\n"),
    "bomb": ("config.yaml", BOMB),
    "deep yaml": ("config.yaml", "a: " + deep(50_000)),
    "deep blocks": ("config.yaml", "".join(f"{' ' * i}a:\n" for i in range(1000))),
    "python": ("config.yaml", "a: !!python/object/apply:os.system [touch /tmp/pwned]\n"),
    "own tag": ("config.yaml", "a: !x 3\n"),
    "base 60": ("config.yaml", "a: 1" + ":00" * 300_000),
    "long text": ("config.yaml", f"a: {'x' * 100_000}"),
    "merge": ("config.yaml", "a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nc: {<<: &c [*b, *c]}\n"),
}


@pytest.mark.slow
def test_a_file_that_cannot_be_trusted_makes_one_line_each(tmp_path):
    write_run(tmp_path / "good", seed=1)
    for case, (name, content) in BAD_FILES.items():
        bad = write_run(tmp_path / case)
        (bad / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        odd = read_run(bad)
        assert odd.kind in ("unreadable", "unfinished"), case
        assert odd.reason.startswith(f"{name} can't be read: "), case
        assert odd.reason.isprintable(), case
        assert len(odd.reason) < 400, case
    text = reported(tmp_path, tmp_path / "report")
    assert "1 finished run in" in text
    assert all(f"/{case}</td>" in text for case in BAD_FILES)


@pytest.mark.slow
def test_what_is_no_plain_file_is_neither_waited_for_nor_followed(tmp_path):
    root = tmp_path / "outputs"
    victim = tmp_path / "secret"
    victim.write_text("root:x:0:0:the secret\n")
    write_run(root / "good", seed=1)
    makers = {
        "fifo": os.mkfifo,
        "link": lambda path: path.symlink_to(victim),
        "loop": lambda path: path.symlink_to(path.name),
        "device": lambda path: path.symlink_to("/dev/zero"),
        "folder": lambda path: path.mkdir(),
        "socket": lambda path: os.mknod(path, stat.S_IFSOCK | 0o600),
    }
    others = ("metrics.csv", "page.html", "reconstruction.png")
    for kind, make in makers.items():
        for name in ("summary.json", "config.yaml", "manifest.json", ERROR, *others):
            bad = write_run(root / f"{kind} {name}", seed=len(list(root.iterdir())))
            if name == ERROR:
                (bad / "summary.json").unlink()
            (bad / name).unlink(missing_ok=True)
            make(bad / name)
            odd = read_run(bad)
            assert name in others or "plain file" in odd.reason, (kind, name)
    text = reported(root, root / "report")
    assert "secret" not in text
    assert "Runs that can&#39;t be read (24)" in text
    assert f"{1 + 3 * len(makers)} finished runs" in text


def test_an_honest_run_that_is_a_link_is_not_followed(tmp_path):
    folder = write_adversarial_run(tmp_path / "outputs" / "run")
    write_run(tmp_path / "elsewhere", seed=7)
    shutil.rmtree(folder / "honest")
    (folder / "honest").symlink_to(tmp_path / "elsewhere")
    assert read_run(folder).honest is None


PLACES = ("report.html", "tables/runs_criteo_settings.csv", "figures/runs_criteo_plane.svg")


def zipped(**members):
    """An archive of these files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}/a/f2/truth.npy", content)
            archive.writestr(f"{name}/a/f2/answer.npy", content)
    return file.getvalue()


HOSTILE_ARCHIVES = {
    "no archive": lambda: b"GIF89a" + bytes(100),
    "torn": lambda: zipped(x=bytes(1000))[:200],
    "no array": lambda: zipped(x=b"%!PS-Adobe-3.0 EPSF-3.0"),
    "bomb": lambda: zipped(x=bytes(300_000_000)),
    "script": lambda: zipped(x=b"</script><script>alert(1)</script>"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", HOSTILE_ARCHIVES)
def test_rebuilt_data_that_cannot_be_read_are_left_out_and_named(case, tmp_path):
    run = write_run(tmp_path / "run")
    (run / "reconstructions.npz").write_bytes(HOSTILE_ARCHIVES[case]())
    assert "reconstructions.npz can't be read" in reported(tmp_path, tmp_path / "report")


def hostile_run(folder, seed, text):
    """A run that says the text wherever it may; YAML has no halves of surrogate pairs."""
    word = text.encode(errors="backslashreplace").decode()
    facts = {
        "threats": {text: FACTS["threats"]["norm"] | {"text": text, "does": text, "level": text}, "norm": {"text": text}},
        "skipped": {text: text},
        "unscored": {f"{text} 2": text},
        "cut_layers": {"a": ["f2", text], text: [text]},
        "layers": {"a": ["f1", "f2", text], text: [text]},
        "versions": {text: text},
        "device": text,
        "python": text,
        "git_commit": text,
        "notes": [text],
        "modules": {text: text},
        "adversary": {},
    }
    place = {
        "attack": text,
        "message": text,
        "party": text,
        "layer": text,
        "figure": "AUC",
        "value": 0.9,
        "low": 0.8,
        "high": 1.0,
    }
    above = place | {"level": text, "ceiling": 0.5}
    verdict = {"worst": place | {"readings": 3}, "levels": {"messages only": place}, "on_changed": {}, "changed": [text]}
    verdict |= {"references": {text: place, "probe": place}, "falls": place | {"because": text}}
    promise = marvell(0.1, 0.5)["guarantees"]["marvell"]
    promise |= {
        "claim": text,
        "bounds": text,
        "assumption": text,
        "assumption_holds": False,
        "exceeded": [above],
        "tested": [],
    }
    rebuilt = {"attack": text, "message": text, "party": text, "layer": text, "batches": 1, "figures": {text: {"mean": 0.5}}}
    figure = {"party": text, "layer": text, "message": text, "figure": text, "value": 3}
    release = {"defense": text, "mechanism": text, "epsilon": 1.0, "times": 1}
    write_run(
        folder,
        seed=seed,
        experiment="bytedance_sumkl" if seed else text,
        dataset=text,
        defense={word: {"sumkl": 0.1 * seed, f"{word} 2": word}},
        guarantees={text: promise},
        leaks=[leak(text, text, 0.9, message=text, party=text), leak("norm", "f2", 0.9)],
        facts=facts,
        verdict=verdict,
        reconstructions=[rebuilt],
        figures=[figure],
        privacy={"epsilon": 1.0, "delta": 1e-6, "releases": [release], "epsilon_low_by": text},
        bytes_sent={text: 3},
        config={"adversary": {word: {}}, "attack": {word: {"k": seed}}, word: {word: f"{word}{seed}"}},
        **{f"list {text}": [{text: text, "n": seed}]},
    )
    (folder / "metrics.csv").write_text(
        "epoch,split,party,layer,message,attack,metric,value,ci_low,ci_high,visible\n0,test,,,,,auc,0.7,,,\n"
    )


@pytest.mark.slow
def test_texts_of_a_run_are_texts_in_every_format(tmp_path):
    texts = [text for text in TEXTS if 0 < len(text) < 20_000 and "\ud800" not in text]  # half a character is no JSON
    for number, text in enumerate(texts):
        hostile_run(tmp_path / str(number), number % 2, text)
    page = reported(tmp_path, tmp_path / "report")
    assert f"{len(texts)} finished runs" in page
    assert not any(c in page for c in "\x00\x1b\x9b\u202e\u2066")


@pytest.mark.slow
def test_names_of_files_are_texts_too(tmp_path):
    root = tmp_path / "outputs"
    write_run(root / "good")
    for number, name in enumerate((EVIL.replace("/", ""), "-rf", "=cmd", "new\nline", "\x1b[31m", "\udcff\udcfe", "a|b`c`")):
        bad = write_run(root / name, seed=number)
        (bad / "summary.json").write_text("{")
        (root / f"{name}.txt").write_text("")
    assert "7 unreadable" in reported(root, root / "report")


@pytest.mark.slow
def test_a_link_in_the_folder_of_the_report_is_replaced_and_not_written_through(tmp_path):
    sweep(tmp_path / "outputs", seeds=1)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    links = [tmp_path / "outputs" / "report" / place for place in PLACES]
    for link in links:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(victim)
    reported(tmp_path / "outputs", tmp_path / "outputs" / "report")
    assert victim.read_text() == "mine"
    assert not any(link.is_symlink() for link in links)
    assert all(link.stat().st_size > 100 for link in links)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tables", "figures"])
def test_a_folder_of_the_report_that_is_a_link_is_refused(tmp_path, name):
    write_run(tmp_path / "outputs" / "run")
    (tmp_path / "victim").mkdir()
    (tmp_path / "outputs" / "report").mkdir()
    (tmp_path / "outputs" / "report" / name).symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match=f"--out=.*{name}.*it can't be written: "):
        write_report([tmp_path / "outputs"], tmp_path / "outputs" / "report")
    assert list((tmp_path / "victim").iterdir()) == []


@pytest.mark.slow
def test_a_report_that_is_a_link_is_followed_only_where_the_user_named_it(tmp_path, capsys):
    write_run(tmp_path / "outputs" / "run")
    (tmp_path / "victim").mkdir()
    (tmp_path / "outputs" / "report").symlink_to(tmp_path / "victim")
    with pytest.raises(UserError, match="^vflbench report .*it is a link"):
        report([str(tmp_path / "outputs")])
    assert list((tmp_path / "victim").iterdir()) == []
    report([str(tmp_path / "outputs"), "--out", str(tmp_path / "outputs" / "report")])
    assert (tmp_path / "victim" / "report.html").exists()
    assert capsys.readouterr().out.endswith("report.html\n")


@pytest.mark.slow
def test_a_page_allows_its_own_script_and_style_alone(tmp_path):
    page = reported(sweep(tmp_path, seeds=1), tmp_path / "report")
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert html.unescape(policy).startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index("<script>")


@pytest.mark.slow
def test_a_run_of_which_no_table_can_be_made_is_a_line_and_the_others_keep_their_numbers(tmp_path, monkeypatch):
    from vflbench.report import page

    sweep(tmp_path, seeds=1)
    bad = write_run(tmp_path / "zz bad", seed=9, test_auc=0.123)
    write_report([tmp_path], tmp_path / "r1", Wishes())
    tables = page.tables

    def broken(section):
        if any(run.folder == bad for run in section.runs["run"]):
            raise ZeroDivisionError("of this run")
        return tables(section)

    monkeypatch.setattr(page, "tables", broken)
    text = reported(tmp_path, tmp_path / "r2")
    assert "it can't be shown: ZeroDivisionError: of this run" in text
    assert "3 finished runs" in text
    settings = (tmp_path / "r2" / "tables" / "runs_criteo_settings.csv").read_text()
    assert '"marvell, sumkl 0.04",1,0.71' in settings
