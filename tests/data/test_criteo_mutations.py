"""The reference for good Criteo lines, checked against examples worked out by hand."""

import random
from collections import Counter

from criteo_mutations import LONGEST, faults, is_valid, lines_of, mutate
from raw_files import criteo_line

GOOD = criteo_line(1, {2: -2, 3: ""}, {4: ""}).encode()


def with_field(at: int, value: bytes) -> bytes:
    fields = GOOD.split(b"\t")
    fields[at] = value
    return b"\t".join(fields)


def test_no_field_may_hold_nul_or_invalid_utf8():
    for at in (0, 1, 13, 14, 39):
        for value in (b"\0", b"\xff", b"\xed\xa0\x80"):
            line = with_field(at, value)
            assert not is_valid(line), (at, value)
            assert {fault.value for fault in faults(line)} == {value}, (at, value)


def test_these_are_integers():
    for value in (b"0", b"-2", b"-0", b"007", b"", b"9223372036854775807", b"-9223372036854775808", b"0" * 6000):
        assert is_valid(with_field(3, value)), value


def test_these_are_not_integers():
    wrong = (b"+1", b" 1", b"1 ", b"1.0", b"1e3", b"ff", b"-", b"9223372036854775808", b"-9223372036854775809", b"\xd9\xa3")
    for value in (*wrong, b'"1"'):
        broken = [(fault.rule, fault.column, fault.value) for fault in faults(with_field(3, value))]
        assert broken == [("integer", "I3", value)], value


def test_a_label_is_0_or_1():
    assert is_valid(with_field(0, b"0"))
    for value in (b"01", b"2", b"-1", b"", b"1.0", b"\xef\xbb\xbf1"):
        assert [fault.rule for fault in faults(with_field(0, value))] == ["label"], value


def test_a_line_has_forty_fields():
    assert is_valid(GOOD)
    assert not is_valid(GOOD + b"\t")
    assert not is_valid(GOOD.replace(b"\t", b"", 1))
    assert is_valid(with_field(39, b"x" * LONGEST))


def test_blank_lines_are_no_rows_and_a_carriage_return_ends_a_line():
    content = b"\xef\xbb\xbf" + GOOD + b"\n\n\r\n" + GOOD + b"\r\n \n" + GOOD + b"\r\r" + GOOD
    expected = [(1, True), (2, True), (3, False), (4, True), (5, True)]
    assert [(number, is_valid(line)) for number, line in lines_of(content)] == expected


def test_mutations_break_every_rule_and_also_leave_good_rows():
    rng = random.Random(0)
    seen = Counter()
    for _ in range(3000):
        for _, line in lines_of(b"x\n" + mutate(GOOD, rng) + b"\n")[1:]:
            seen.update({fault.rule for fault in faults(line)} or {"good"})
    rules = {"good", "fields", "nul", "utf-8", "label", "integer"}
    assert set(seen) == rules
    assert min(seen[rule] for rule in rules) >= 30
