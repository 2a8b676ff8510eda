"""`vflbench reproduce asynchronous_range`."""

import pytest

from vflbench.cli.reproduce import reproduce
from vflbench.errors import UserError


@pytest.mark.slow
def test_it_prints_every_line_of_its_table(capsys):
    words = ["--shapes", "4x5", "--batches", "2,3", "--draws", "2", "--lowest", "1e-3"]
    reproduce(["asynchronous_range", *words])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["m", "d", "n"]
    assert [tuple(map(int, line.split()[:3])) for line in lines] == [(4, 5, 2), (4, 5, 3)]
    assert all("(0.0%)" in line for line in lines)


def test_given_rates_have_a_line_each(capsys):
    reproduce(["asynchronous_range", "--shapes", "4x5", "--rates", "0.1,0.5", "--draws", "2"])
    head, *lines = capsys.readouterr().out.splitlines()
    assert head.split() == ["m", "d", "rate", "sum", "each", "wrong"]
    assert [line.split()[2] for line in lines] == ["0.1", "0.5"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--shapes", "4"], "--shapes=4: rows x columns, as 8x10"),
        (["--shapes", "0x5"], "--shapes=0x5"),
        (["--batches", "two"], "--batches=two: numbers, separated by commas"),
        (["--rates", "0.1,-1"], "--rates=0.1,-1: each above 0"),
        (["--draws", "0"], "--draws=0: at least 1"),
    ],
)
def test_what_is_no_size_or_number_is_refused(words, message):
    with pytest.raises(UserError) as caught:
        reproduce(["asynchronous_range", *words])
    assert str(caught.value).startswith(message)
