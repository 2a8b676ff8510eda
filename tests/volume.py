"""How many random cases a slow test tries."""

from hypothesis import settings


def volume(whole: int) -> int:
    """An eighth of them, at least one; all with `pytest -m slow --hypothesis-profile=long`."""
    return whole if settings.default.max_examples > 100 else max(1, whole // 8)
