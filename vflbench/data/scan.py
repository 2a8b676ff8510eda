"""Lines of a fixed layout -> numbers, compiled by numba: eight bytes at a time, and only what needs no second look.

Bytes are read as 64-bit words, first byte lowest. Where something needs care, such as a quote, a letter beyond ASCII or a
wrong value, the functions stop, and the caller parses the block as it does without numba.
"""

import numpy as np
from numba import njit, types

LABEL, INTEGER, CATEGORY, IGNORED = range(4)
CAREFUL = -1
"""What the functions return in place of a count where they stop."""

_U = np.uint64
_TOPS = _U(0x8080808080808080)  # the highest bit of each byte
_ONES = _U(0x0101010101010101)
_BLANKS = _U(0x2020202020202020)
_ZEROS = _U(0x3030303030303030)  # the digit 0
_BEYOND_NINE = _U(0x4646464646464646)  # a byte above the digit 9 plus this has its highest bit set
_PLACES = _U(0x0001020304050607)  # times 256^k: k in the highest byte
_ODD_BYTES = _U(0x000000FF000000FF)
_NEVER = -(2**31)  # marks a missing integer
_MOST_DIGITS = 10
_MOST_IGNORED = 4096  # bytes
_PROBES = 16  # of a table, a key in the mean: more are no chance


@njit(inline="always")
def _word(text: np.ndarray, place: np.uint64) -> np.uint64:
    """The eight bytes from `place` on; after the text's end come line feeds."""
    if place + _U(8) <= _U(len(text)):
        return (
            _U(text[place])
            | _U(text[place + _U(1)]) << _U(8)
            | _U(text[place + _U(2)]) << _U(16)
            | _U(text[place + _U(3)]) << _U(24)
            | _U(text[place + _U(4)]) << _U(32)
            | _U(text[place + _U(5)]) << _U(40)
            | _U(text[place + _U(6)]) << _U(48)
            | _U(text[place + _U(7)]) << _U(56)
        )
    word, shift = _ONES * _U(10), _U(0)
    while place < _U(len(text)):
        word = word & ~(_U(255) << shift) | _U(text[place]) << shift
        place, shift = place + _U(1), shift + _U(8)
    return word


@njit(inline="always")
def _marks(word: np.uint64, delimiter: np.uint64, quote: np.uint64) -> np.uint64:
    """The highest bit of each byte that ends or spoils a plain value: what is not printable ASCII, and, unless `quote` is 0,
    the delimiter and quotes. The lowest bit is exact; those above it may be too many.
    """
    marks = (word - _BLANKS) & ~word | word
    if quote:
        ends, quotes = word ^ delimiter, word ^ quote
        marks |= ((ends - _ONES) & ~ends) | ((quotes - _ONES) & ~quotes)
    return marks & _TOPS


@njit(inline="always")
def _reversed(word: np.uint64) -> np.uint64:
    """The bytes in the other order: texts as numbers of the same order."""
    word = ((word & _U(0x00FF00FF00FF00FF)) << _U(8)) | ((word >> _U(8)) & _U(0x00FF00FF00FF00FF))
    word = ((word & _U(0x0000FFFF0000FFFF)) << _U(16)) | ((word >> _U(16)) & _U(0x0000FFFF0000FFFF))
    return (word << _U(32)) | (word >> _U(32))


@njit(inline="always")
def _digits(word: np.uint64, count: np.uint64) -> np.int64:
    """The number of 1 to 7 digits, the first in the lowest byte; below zero where one is none.

    Pairs of digits, then pairs of pairs, then both halves at once.
    """
    word = word << ((_U(8) - count) << _U(3)) | _ZEROS >> (count << _U(3))
    if ((word + _BEYOND_NINE) | (word - _ZEROS)) & _TOPS:
        return np.int64(-1)
    word -= _ZEROS
    word = word * _U(10) + (word >> _U(8))
    high, low = word & _ODD_BYTES, (word >> _U(16)) & _ODD_BYTES
    return np.int64((high * _U(0x000F424000000064) + low * _U(0x0000271000000001)) >> _U(32))


_TEXT = types.Array(types.uint8, 1, "C", readonly=True)
_KEYS, _PLACES_OF_KEYS, _COUNTS = types.uint64[::1], types.int32[::1], types.int64[::1]


@njit(
    types.int64(_TEXT, types.uint64, types.uint64, _COUNTS, _COUNTS, types.int64, types.int32[:, ::1], types.uint64[:, ::1]),
    nogil=True,
    cache=True,
)
def scan(
    text: np.ndarray,
    delimiter: np.uint64,
    quote: np.uint64,
    kinds: np.ndarray,
    places: np.ndarray,
    limit: int,
    numbers: np.ndarray,
    keys: np.ndarray,
) -> int:
    """The first `limit` lines of a text. Returns how many there are, or CAREFUL.

    text: (bytes,) uint8, whole lines. delimiter, quote: eight times that byte; a quote of 0 needs a delimiter that is not
    printable, such as a tab, and takes quotes as they are. kinds: what each column is; places: where its values go.
    numbers: (rows, k) int32, filled; -2^31 where missing. keys: (c + 1, rows) uint64, filled: the bytes of each
    category, and last of the label, as a number. The arrays must have room for all lines.
    """
    end, place, row, last = _U(len(text)), _U(0), 0, len(kinds) - 1
    while place < end and row < limit:
        for column in range(last + 1):
            kind, word = kinds[column], _word(text, place)
            marks = _marks(word, delimiter, quote)
            length = _U(8)
            if marks:
                lowest = (marks & (~marks + _U(1))) >> _U(7)
                length = (lowest * _PLACES) >> _U(56)
                word &= lowest - _U(1)
            if kind == CATEGORY:
                keys[places[column], row] = _reversed(word)
            elif kind == INTEGER:
                value = np.int64(_NEVER)
                negative = (word & _U(255)) == _U(45)
                if negative and length == _U(1):
                    return CAREFUL
                if length == _U(8):  # maybe longer
                    length, value = _U(negative), np.int64(0)
                    while place + length < end and _U(48) <= _U(text[place + length]) <= _U(57):
                        if length > _U(_MOST_DIGITS):
                            return CAREFUL
                        value = value * 10 + np.int64(text[place + length]) - 48
                        length += _U(1)
                    if value >= 2**31:
                        return CAREFUL
                    value = -value if negative else value
                elif length:
                    value = _digits(word >> _U(8), length - _U(1)) if negative else _digits(word, length)
                    if value < 0:
                        return CAREFUL
                    value = -value if negative else value
                numbers[row, places[column]] = value
            elif kind == LABEL:
                if length != _U(1) or word >> _U(1) != _U(24):  # 0 or 1
                    return CAREFUL
                keys[places[column], row] = _reversed(word)
            else:
                ignored = length
                while not marks and ignored < _U(_MOST_IGNORED):
                    marks = _marks(_word(text, place + ignored), delimiter, quote)
                    lowest = (marks & (~marks + _U(1))) >> _U(7)
                    ignored += (lowest * _PLACES) >> _U(56) if marks else _U(8)
                length = ignored
            place += length
            mark = _U(text[place]) if place < end else _U(10)
            if column == last and mark == _U(13) and place + _U(1) < end:
                place += _U(1)
                mark = _U(text[place])
            if mark != (_U(10) if column == last else delimiter & _U(255)):
                return CAREFUL
            place += _U(1)
        row += 1
    return row


@njit(types.int64(_KEYS, _COUNTS, _PLACES_OF_KEYS, _KEYS, _COUNTS, types.int64, _PLACES_OF_KEYS), nogil=True, cache=True)
def number_keys(
    keys: np.ndarray,
    weights: np.ndarray,
    table: np.ndarray,
    values: np.ndarray,
    counts: np.ndarray,
    size: int,
    places: np.ndarray,
) -> int:
    """Number the keys in the order in which each occurs first. Returns how many there are then, or CAREFUL.

    keys: (n,) uint64; weights: (n,) int64, added up a key in counts. table: a power of two of int32, -1 where empty: a hash
    table of places among `values`, the `size` keys of former calls, which is at most half full afterwards.
    places: (n,) int32, filled: the number of each key.
    """
    mask, shift = _U(len(table) - 1), _U(64)
    while _U(1) << (_U(64) - shift) < _U(len(table)):
        shift -= _U(1)
    patience = _PROBES * (len(keys) + 4096)
    for i in range(len(keys)):
        key = keys[i]
        slot = (key * _U(0x9E3779B97F4A7C15)) >> shift
        while True:
            place = table[slot]
            if place < 0:
                place = size
                table[slot], values[place], counts[place] = place, key, 0
                size += 1
                break
            if values[place] == key:
                break
            slot = (slot + _U(1)) & mask
            patience -= 1
        if patience < 0:
            return CAREFUL
        counts[place] += weights[i]
        places[i] = place
    return size
