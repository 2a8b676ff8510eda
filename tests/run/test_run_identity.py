"""What a run's identity holds: an edit that can change a number changes it, and nothing else does."""

import importlib
import os
import py_compile
import shutil
import sys

import pytest

from vflbench.errors import UserError
from vflbench.results.identity import digest
from vflbench.run import file_digests, identity, own_code, plugin_files, plugin_imports, plugin_modules
from vflbench.run.identity import changed_on_the_way, origin_of, refuse_changed_data, refuse_edited
from vflbench.run.plugin_modules import import_from

LOUD = {"seed": 1, "attack": {"loud": {"_target_": "loud.Loud"}}}


@pytest.fixture
def process(tmp_path):
    """Call it for a new process: nothing is read, imported or on the path. What is installed stays imported."""
    path, hooks = list(sys.path), list(sys.path_hooks)

    def begin():
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or list(getattr(module, "__path__", ()))).find(str(tmp_path)) >= 0:
                del sys.modules[name]
        sys.path[:], sys.path_hooks[:] = path, hooks
        sys.path_importer_cache.clear()
        for cached in (plugin_imports._outside, identity._top_names, file_digests._in_this_process):
            cached.cache_clear()
        plugin_files._read.clear()
        plugin_files._in_use.clear()

    begin()
    yield begin
    begin()


def write(folder, sources):
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)


def of(process, *folders, config=LOUD):
    process()
    return digest(config, origin_of(config, folders))


SOURCES = {
    "loud.py": "import importlib, tools\nfrom pack.inner import f\nimportlib.import_module('compu' + 'ted')\n",
    "tools.py": "A = 1\n",
    "computed.py": "",
    "pack/__init__.py": "from . import near\n",
    "pack/inner.py": "def f(): ...\n",
    "pack/near.py": "",
    "space/deep/far.py": "",
    "weights.json": "[1]",
    "attack/loud.yaml": "loud: {_target_: loud.Loud}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCES)
def test_every_file_of_a_plug_in_folder_counts(tmp_path, process, name):
    """The plug-in, its neighbours, one with a computed name, a package's __init__, a namespace, data beside it."""
    write(tmp_path / "mine", SOURCES)
    before = of(process, tmp_path / "mine")
    (tmp_path / "mine" / name).write_text(SOURCES[name] + " ")
    edited = of(process, tmp_path / "mine")
    (tmp_path / "mine" / name).rename(tmp_path / "mine" / "other.txt")
    renamed = of(process, tmp_path / "mine")
    (tmp_path / "mine" / "other.txt").unlink()
    deleted = of(process, tmp_path / "mine")
    assert len({before, edited, renamed, deleted}) == (3 if name == "loud.py" else 4)  # without its class no run begins
    write(tmp_path / "mine", SOURCES)
    assert of(process, tmp_path / "mine") == before


def test_neither_times_nor_places_nor_what_editors_and_runs_leave_count(tmp_path, process):
    write(tmp_path / "mine", SOURCES)
    before = of(process, tmp_path / "mine")
    leftovers = {
        "__pycache__/tools.cpython-312.pyc": "",
        ".git/HEAD": "",
        "tools.py~": "",
        "#tools.py#": "",
        ".tools.swp": "",
    }
    run = {f"outputs/run_{n}/{name}": "" for n in (1, 2) for name in ("config.yaml", "manifest.json", "metrics.csv")}
    write(tmp_path / "mine", {**leftovers, **run, "outputs/multirun.yaml": ""})
    (tmp_path / "mine" / "tools.py").touch()
    assert of(process, tmp_path / "mine") == before
    shutil.copytree(tmp_path / "mine", tmp_path / "elsewhere" / "yours")
    assert of(process, tmp_path / "elsewhere" / "yours") == before


def test_a_package_with_a_config_and_a_manifest_is_no_run(tmp_path, process):
    """Only with metrics.csv: else a plug-in's own config.yaml would hide what it reads."""
    write(tmp_path / "mine", SOURCES | {"pack/config.yaml": "", "pack/manifest.json": ""})
    before = of(process, tmp_path / "mine")
    write(tmp_path / "mine", {"pack/near.py": "B = 2"})
    assert of(process, tmp_path / "mine") != before


def test_plug_ins_count_where_a_run_uses_one_and_then_all_folders_in_their_order(tmp_path, process):
    write(tmp_path / "a", {"loud.py": "from pack import x\n", "pack/x.py": "A = 1\n"})
    write(tmp_path / "b", {"pack/x.py": "A = 2\n"})
    a, b = tmp_path / "a", tmp_path / "b"
    assert len({of(process, a), of(process, a, b), of(process, b, a)}) == 3  # pack is a namespace: the first x is imported
    norm = {"seed": 1, "attack": {"norm": {"_target_": "vflbench.attacks.norm.Norm"}}}
    assert of(process, a, config=norm) == of(process, config=norm)
    named = {"seed": 1, "model": {"_target_": "vflbench.models.torch.Torch", "bottom": "loud:Bottom"}}
    assert of(process, a, config=named) != of(process, config=named)


def test_a_link_to_a_folder_counts_as_what_it_leads_to(tmp_path, process):
    write(tmp_path / "library", {"x.py": "A = 1\n"})
    write(tmp_path / "mine", {"loud.py": ""})
    (tmp_path / "mine" / "pack").symlink_to(tmp_path / "library")
    (tmp_path / "mine" / "again").symlink_to(tmp_path / "mine")
    before = of(process, tmp_path / "mine")
    write(tmp_path / "library", {"x.py": "A = 2\n"})
    assert of(process, tmp_path / "mine") != before


def test_a_package_that_a_plug_in_imports_counts(tmp_path, process, monkeypatch):
    """From a folder on Python's path, as an editable install is; with what it imports itself."""
    write(tmp_path / "site", {"kit/__init__.py": "", "kit/nets.py": "import base_kit\n", "base_kit.py": "A = 1\n"})
    write(tmp_path / "mine", {"loud.py": "from kit.nets import Loud\n"})
    process()
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "site")])

    def now():
        plugin_imports._outside.cache_clear()
        return digest(LOUD, origin_of(LOUD, [tmp_path / "mine"]))

    digests = [now()]
    for name in ("kit/nets.py", "kit/__init__.py", "base_kit.py"):
        write(tmp_path / "site", {name: "import base_kit\nB = 3\n"})
        digests.append(now())
    shutil.rmtree(tmp_path / "site" / "kit")
    importlib.invalidate_caches()
    assert len({*digests, now()}) == 5


@pytest.mark.slow
def test_an_installed_package_counts_with_what_its_installer_recorded(tmp_path, process):
    write(tmp_path, {"loud.py": "import yaml, torch, json\n"})
    process()
    (entry,) = origin_of(LOUD, [tmp_path])["imports"].items()
    assert entry[0] == "yaml"
    assert len(entry[1].rpartition(" ")[2]) == 64


def test_a_folder_of_too_much_is_refused(tmp_path, process, monkeypatch):
    write(tmp_path, {f"{n}.py": "" for n in range(12)} | {"loud.py": ""})
    monkeypatch.setattr(plugin_files, "MOST_FILES", 12)
    with pytest.raises(UserError, match=r"--plugins=.*more than .* files .*; name a folder that holds nothing else"):
        of(process, tmp_path)


def test_what_was_digested_is_what_runs(tmp_path, process):
    """A stale compiled file, an edit between the digest and the import, and one between an import and a later one."""
    mine = tmp_path / "mine"
    write(mine, {"loud.py": "A = 1\n", "tools.py": "A = 1\n", "later.py": "A = 1\n"})
    process()
    for name in ("loud", "tools"):
        py_compile.compile(mine / f"{name}.py")  # as importing them would
    times = (mine / "loud.py").stat()
    (mine / "loud.py").write_text("A = 2\n")
    os.utime(mine / "loud.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    process()
    sys.path.append(str(mine))
    assert importlib.import_module("loud").A == 1  # Python itself runs the former code
    process()
    import_from([mine])
    origin = origin_of(LOUD, [mine])
    assert importlib.import_module("loud").A == 2
    (mine / "tools.py").write_text("A = 3\n")
    with pytest.raises(ImportError, match=r"tools.py in .* was edited since this command began; run the same command again"):
        importlib.import_module("tools")
    with pytest.raises(UserError, match=r"--plugins=.*tools.py was edited since this command began"):
        refuse_edited([mine], origin)
    (mine / "tools.py").write_text("A = 1\n")
    refuse_edited([mine], origin)
    (mine / "loud.py").write_text("A = 4\n")
    with pytest.raises(ImportError, match="was edited"):
        importlib.reload(sys.modules["loud"])
    refuse_edited([mine], origin, loaded_suffices=True)  # a sweep goes on with the module that it has
    (mine / "new.py").write_text("A = 4\n")
    with pytest.raises(ImportError, match="is not among the files that count"):
        importlib.import_module("new")
    assert changed_on_the_way([mine], origin) == ["plug-in file new.py"]
    assert not list(mine.rglob("__pycache__/new*"))
    assert digest(LOUD, origin_of(LOUD, [mine])) == digest(LOUD, origin)


def test_a_module_without_source_and_one_out_of_sight_are_held_against_the_listing_too(tmp_path, process):
    write(tmp_path, {"loud.py": "", "source.py": "A = 1\n", ".hidden/secret.py": "A = 1\n"})
    py_compile.compile(tmp_path / "source.py", tmp_path / "bare.pyc")
    process()
    import_from([tmp_path])
    first = digest(LOUD, origin_of(LOUD, [tmp_path]))
    assert importlib.import_module("bare").A == 1
    sys.path.append(str(tmp_path / ".hidden"))
    with pytest.raises(ImportError, match="not among the files that count"):
        importlib.import_module("secret")
    (tmp_path / "source.py").write_text("A = 2\n")
    py_compile.compile(tmp_path / "source.py", tmp_path / "bare.pyc")
    (tmp_path / "source.py").write_text("A = 1\n")
    assert of(process, tmp_path) != first


def data_of(path, **options):
    return {"seed": 1, "dataset": {"_target_": "vflbench.data.csv.Csv", "path": str(path), **options}}


def test_data_counts_by_its_content_alone(tmp_path, process, monkeypatch):
    monkeypatch.setattr(file_digests, "_SMALL", 0)  # every file as a large one
    monkeypatch.setattr(file_digests, "_SETTLED_SECONDS", -1.0)
    monkeypatch.setenv("VFLBENCH_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "clicks.csv"
    file.write_text("a,b\n1,2\n")
    config = data_of(file)
    first = of(process, config=config)
    file.touch()
    assert of(process, config=config) == first
    times = file.stat()
    file.write_text("a,b\n1,3\n")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))  # the same size, time and inode
    assert of(process, config=config) != first
    file.unlink()
    assert of(process, config=config) != first
    file.write_text("a,b\n1,2\n")
    assert of(process, config=config) == first
    kept = list((tmp_path / "cache" / "digests").iterdir())
    assert kept
    assert (tmp_path / "cache" / "digests").stat().st_mode & 0o077 == 0
    for entry in kept:
        entry.write_text("../../../etc/passwd")
    assert of(process, config=config) == first
    (tmp_path / "cache" / "digests").chmod(0o777)  # others may have written there
    for entry in kept:
        entry.write_text("0" * 64)
    assert of(process, config=config) == first


def test_every_option_that_names_a_file_counts_and_patterns_and_folders_of_data(tmp_path, process):
    (tmp_path / "w.npy").write_text("1")
    (tmp_path / "days").mkdir()
    for day in "12":
        (tmp_path / "days" / f"day_{day}").write_text(day)
    own = {"attack": {"mine": {"_target_": "vflbench.attacks.norm.Norm", "options": [{"weights": str(tmp_path / "w.npy")}]}}}
    for config, name in (
        (own, "w.npy"),
        (data_of(tmp_path / "days" / "day_*"), "days/day_2"),
        (data_of(tmp_path / "days"), "days/day_1"),
        ({"attack": {"mine": {"weights_dir": str(tmp_path / "days")}}}, "days/day_1"),
        ({"dataset": {"path": [str(tmp_path / "w.npy"), str(tmp_path / "days" / "day_1")]}}, "days/day_1"),
    ):
        before = of(process, config=config)
        (tmp_path / name).write_text(f"other than {before}")
        assert of(process, config=config) != before, name


def test_mnist_in_the_folder_of_the_environment_counts(tmp_path, process, monkeypatch):
    monkeypatch.setenv("VFLBENCH_DATA", str(tmp_path))
    config = {"dataset": {"_target_": "vflbench.data.mnist.Mnist", "path": None}}
    before = of(process, config=config)
    write(tmp_path / "mnist", {"t10k-images-idx3-ubyte": "x"})
    assert of(process, config=config) != before


def test_what_hangs_is_not_read(tmp_path, process):
    os.mkfifo(tmp_path / "pipe")
    assert origin_of(data_of(tmp_path / "pipe"))["data"] == {"dataset.path": "missing"}
    assert origin_of({"a": str(tmp_path / "pipe"), "b": "/proc/kmsg", "c": "x" * 5000, "d": "a\0b"})["data"] in (
        {},
        {"b": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
    )
    write(tmp_path / "mine", {"loud.py": ""})
    os.mkfifo(tmp_path / "mine" / "pipe")
    (tmp_path / "mine" / "gone").symlink_to(tmp_path / "nowhere")
    assert of(process, tmp_path / "mine")


def test_rows_of_other_bytes_than_the_identity_stands_for_are_refused(tmp_path):
    file = tmp_path / "clicks.csv"
    file.write_text("a,b\n1,2\n")
    config = data_of(file)
    origin = origin_of(config)
    refuse_changed_data(config, origin, {"file_sha256": origin["data"]["dataset.path"]})
    with pytest.raises(UserError, match="prepared data of its former content is in the cache"):
        refuse_changed_data(config, origin, {"file_sha256": "0" * 64})
    file.write_text("a,b\n1,3\n")
    with pytest.raises(UserError, match=r"dataset.path=.*a file changed while this command read it"):
        refuse_changed_data(config, origin, {})


def test_our_own_code_counts_but_for_rooms_that_decide_no_number(tmp_path):
    package = tmp_path / "vflbench"
    rooms = ("attacks", "data", "defenses", "engines", "messages", "metrics", "models", "numerics", "protocols", "run")
    shutil.copytree(own_code.PACKAGE, package, ignore=shutil.ignore_patterns("__pycache__"))
    before = own_code.digest_of(own_code.own_sources(package))
    assert before == own_code.code_digest()
    for room in ("cli", "results"):
        next((package / room).rglob("*.py")).write_text("edited = 1\n")
    assert own_code.digest_of(own_code.own_sources(package)) == before
    seen = {before}
    for place in (*(package / room for room in rooms), package):
        sorted(place.glob("*.py"))[-1].write_text(f"edited = {len(seen)}\n")
        seen.add(own_code.digest_of(own_code.own_sources(package)))
    (package / "attacks" / "norm.py").unlink()
    (package / "attacks" / "new.py").write_text("")
    assert len({*seen, own_code.digest_of(own_code.own_sources(package))}) == len(rooms) + 3
    assert not own_code.edited_while_running()


def test_modules_of_ours_are_left_to_python(process):
    """Also where a plug-in folder holds our own package, as `--plugins .` in a checkout does."""
    process()
    plugin_files.use([own_code.PACKAGE.parent])
    assert plugin_modules._folder_of(own_code.PACKAGE / "attacks") is None
