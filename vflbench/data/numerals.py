"""Which texts are numbers: ASCII digits, finite, and no other spellings that Python or a library may know."""

import math
import re

_INTEGER = re.compile(r"(-?)0*([0-9]{1,19})")
_REAL = re.compile(r"[ \t]*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[ \t]*")


def is_integer(text: str) -> bool:
    """Whether this is a whole number of 64 bits, -?[0-9]+."""
    match = _INTEGER.fullmatch(text)
    return match is not None and -(2**63) <= int(match[1] + match[2]) < 2**63


def is_real(text: str) -> bool:
    """Whether this is a finite decimal number, such as -1.5e3; not 1_0, 0x1, inf, nan, 1e400 or digits of other scripts."""
    return _REAL.fullmatch(text) is not None and math.isfinite(float(text))
