"""Digits that show a difference."""

_MOST = 6


def apart(larger: float, smaller: float, digits: int = 3) -> tuple[str, str]:
    """Two numbers with as many digits as show that the first is larger: `0.9500` and `0.9496`, `1` and `1 - 8e-13`.

    Three digits where there is no difference. larger, smaller: in [0, 1], as an AUC and its ceiling.
    """
    pairs = [(f"{larger:.{n}f}", f"{smaller:.{n}f}") for n in range(digits, _MOST + 1)]
    if not larger > smaller:
        return pairs[0]
    for one, other in pairs:
        if float(one) > float(other):
            return one, other
    if smaller > 0.9:
        return _from_one(larger), _from_one(smaller)
    return f"{larger:.12g}", f"{smaller:.12g}"


def _from_one(value: float) -> str:
    return "1" if value >= 1 else f"1 - {1 - value:.2g}"
