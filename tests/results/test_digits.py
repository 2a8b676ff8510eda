"""Two numbers of which one is larger never look the same."""

import math

import pytest

from vflbench.results.gate import apart


@pytest.mark.parametrize(
    ("larger", "smaller", "texts"),
    [
        (0.95, 0.746, ("0.950", "0.746")),
        (0.95, 0.9496, ("0.9500", "0.9496")),
        (1.0, 0.9999, ("1.0000", "0.9999")),
        (1.0, 1 - 7.7e-13, ("1", "1 - 7.7e-13")),
        (1 - 1e-8, 1 - 7e-8, ("1 - 1e-08", "1 - 7e-08")),
        (0.6 + 1e-9, 0.6, ("0.600000001", "0.6")),
        (0.7, 0.7, ("0.700", "0.700")),
        (0.6, 0.7, ("0.600", "0.700")),
    ],
)
def test_as_many_digits_as_show_which_is_larger(larger, smaller, texts):
    assert apart(larger, smaller) == texts


def test_what_is_undefined_has_a_text():
    assert apart(math.nan, 0.7)[1] == "0.700"
