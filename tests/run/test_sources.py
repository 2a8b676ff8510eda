"""Digests of plug-ins, read from files that are never imported."""

import hashlib
import sys

from vflbench.run.sources import plugin_digests


def write(folder, sources):
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(source)


def config(target):
    return {"seed": 1, "attack": {"mine": {"_target_": target, "k": 3}}, "logger": {"own": {"_target_": "books.Logger"}}}


def test_the_module_and_what_it_imports_from_the_folder_count(tmp_path):
    sources = {
        "loud.py": "import json, helper\nfrom pack.inner import f\nraise SystemExit('never imported')\n",
        "helper.py": "def late():\n    from deep import x\n",
        "deep.py": "import helper\n",
        "pack/__init__.py": "",
        "pack/inner.py": "from . import near, gone\nfrom .star import *\nfrom ..far import y\n"
        "import_module('.called', __package__)\n",
        "pack/near.py": "",
        "pack/called.py": "",
        "pack/star/__init__.py": "",
        "pack/star/ray.py": "",
    }
    write(tmp_path, sources | {"pack/unused.py": "", "unused.py": "", "books.py": "", "attack/mine.yaml": ""})
    digests = plugin_digests(config("loud.Loud"), [tmp_path])
    modules = {name: name.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for name in sources}
    assert digests == {modules[name]: hashlib.sha256(source.encode()).hexdigest() for name, source in sources.items()}
    assert list(digests) == sorted(digests)
    assert not {"loud", "helper", "pack"} & set(sys.modules)


def test_an_installed_package_counts_with_its_own_modules_only(tmp_path, monkeypatch):
    sources = ("kit_a/__init__.py", "kit_a/attacks.py", "kit_a/tools.py", "kit_a/unused.py", "kit_b.py")
    write(tmp_path, dict.fromkeys(sources, "import kit_b, numpy\nfrom kit_a import tools\n"))
    monkeypatch.syspath_prepend(tmp_path)
    assert list(plugin_digests(config("kit_a.attacks.Loud"))) == ["kit_a", "kit_a.attacks", "kit_a.tools"]
    assert "kit_a" not in sys.modules


def test_what_is_no_plug_in_has_no_digest(tmp_path):
    for target in ("vflbench.attacks.norm.Norm", "os.system", "nowhere.X", "X", "", ".x.Y", "__main__.X", 3):
        assert plugin_digests(config(target), [tmp_path]) == {}, target


def test_a_module_with_a_mistake_counts_by_its_bytes(tmp_path):
    (tmp_path / "broken.py").write_bytes(b"class \xff(:\x00")
    assert list(plugin_digests(config("broken.X"), [tmp_path])) == ["broken"]


def test_a_config_folder_does_not_hide_an_installed_module(tmp_path, monkeypatch):
    """mine/attack/ without __init__.py holds configs; a module `attack` elsewhere is still imported."""
    write(tmp_path, {"site/attack.py": "", "mine/attack/loud.yaml": ""})
    monkeypatch.syspath_prepend(tmp_path / "site")
    digests = plugin_digests(config("attack.Loud"), [tmp_path / "mine"])
    assert digests == {"attack": hashlib.sha256(b"").hexdigest()}


def test_the_classes_of_a_model_count_however_they_are_written(tmp_path):
    write(
        tmp_path,
        {"nets/__init__.py": "", "nets/towers.py": "import shapes", "shapes.py": "", "heads.py": "", "small.py": ""},
    )
    for bottom, top in (("nets.towers:Bottom", "heads.Top"), ("nets.towers.Bottom", "heads:Outer.Top")):
        node = {
            "_target_": "vflbench.models.torch.Torch",
            "bottom": bottom,
            "top": top,
            "top_options": {"bottom": "small.X"},
        }
        assert list(plugin_digests({"model": node}, [tmp_path])) == ["heads", "nets", "nets.towers", "shapes"]
        assert plugin_digests({"dataset": node}, [tmp_path]) == {}
    for bottom in ("torch.nn:Linear", "vflbench.models.base:Top", "???", "small", ":X", None):
        assert plugin_digests({"model": {"bottom": bottom}}, [tmp_path]) == {}, bottom
