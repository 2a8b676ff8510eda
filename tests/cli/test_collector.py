import subprocess
import sys


def test_garbage_is_collected_again_once_a_run_is_built_and_modules_are_left_out():
    code = (
        "import gc\n"
        "from vflbench.cli import collector\n"
        "before = gc.get_freeze_count()\n"  # Python 3.12 freezes something of its own
        "collector.begin()\n"
        "assert gc.isenabled() and gc.get_freeze_count() == before\n"  # it was not put off
        "collector.put_off()\n"
        "assert not gc.isenabled()\n"
        "import json.tool\n"
        "collector.begin()\n"
        "frozen = gc.get_freeze_count()\n"
        "assert gc.isenabled() and frozen > before + 1000\n"
        "collector.begin()\n"
        "assert gc.get_freeze_count() == frozen\n"  # what a run leaves later is not frozen
    )
    subprocess.run([sys.executable, "-c", code], check=True)
