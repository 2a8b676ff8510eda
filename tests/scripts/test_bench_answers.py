import bench
import pytest
from benches.answers import COMMANDS
from script_runs import run


@pytest.mark.slow
def test_it_has_every_command_and_each_ends_as_it_should():
    done = run(bench, "answers", "--quick")
    assert done.returncode == 0, done.stderr
    for what in COMMANDS:
        assert f"\n{what} " in done.stdout
