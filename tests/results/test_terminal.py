"""Lines keep together what belongs so, and fit a terminal."""

from pathlib import Path

import pytest

from vflbench.cli.main import fail
from vflbench.results.terminal import path_text, wrapped


def test_a_number_stays_with_its_percent_sign_and_a_long_path_stays_whole():
    lines = wrapped(f"{'x' * 76} 55 % of it /{'long' * 40}/name")
    assert lines[0] == "x" * 76
    assert lines[1].startswith("55 % of it")
    assert f"/{'long' * 40}/name" in lines


def test_messages_are_wrapped_at_a_terminal_and_lines_to_search_elsewhere(capsys, monkeypatch):
    place = f"dataset.path=/{'long' * 30}/name"
    text = f"{place}: there is no such file, and this goes on until the line is full and goes on {'and on ' * 9}".strip()
    with pytest.raises(SystemExit):
        fail(text)
    assert capsys.readouterr().err == f"{text}\n"
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with pytest.raises(SystemExit):
        fail(text)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"{place}:"  # whole, to copy
    assert all(len(line) <= 80 for line in lines[1:])
    assert " ".join(lines) == text


def test_a_path_is_as_it_is_typed_from_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert path_text(tmp_path / "outputs" / "run") == "outputs/run"
    assert path_text(tmp_path / "my runs") == "'my runs'"
    assert path_text(tmp_path.parent) == str(tmp_path.parent)
    assert path_text(Path("outputs")) == "outputs"
