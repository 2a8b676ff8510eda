"""What Hydra can't parse in a command line, told in terms of the shell: quotes, brackets and -m."""

import re
from collections.abc import Sequence

from vflbench.cli.groups import KEYED_NAMES

_PAIRS = (("(", ")"), ("[", "]"), ("{", "}"))


def quoting_mistake(text: str, word: str, words: Sequence[str]) -> str | None:
    """A sentence on a word that Hydra's grammar refuses; None where the mistake is another.

    text: Hydra's message. word: that it is about. words: sys.argv.
    """
    if ambiguous := re.match(r"Ambiguous value for argument '(?P<word>.+?)' 1\. To use", text):
        return _several(ambiguous["word"], sweeps=bool(words) and words[0] == "vflbench train")
    if "hydra.cc/docs" not in text and "Error parsing override" not in text:
        return None
    place = words.index(word) if word in words else len(words)
    return split_word(words[: place + 1], words[place + 1 :]) or _ungrammatical(word)


def split_word(before: Sequence[str], after: Sequence[str]) -> str | None:
    """The sentence where the last word of `before` and its neighbours were one word before the shell split it."""
    word = before[-1] if before else ""
    for start in range(len(before) - 1, -1, -1):  # the beginning may be some words back: attack=[a, b, c]
        if "=" in before[start] and not before[start].startswith("-"):
            break
    else:
        return None
    parts = [*before[start:], *after]
    for count in range(2, len(parts) + 1):
        joined = " ".join(parts[:count])
        if not _open(joined) and _open(parts[0]) and count > len(before) - start - 1:
            return f"{parts[0]}: the shell splits it at its spaces; put quotes around the whole: '{joined}'"
    if _open(parts[0]):
        return f"{parts[0]}: a bracket is not closed"
    key, _, value = parts[0].partition("=")
    if value.endswith(",") and len(parts) > 1 and "=" not in parts[1]:
        return f"{parts[0]}: it ends in a comma; leave out the space behind it: {parts[0]}{parts[1]}"
    if start < len(before) - 1 and "=" not in word and value:
        if key in KEYED_NAMES:
            example = f"several names stand in brackets, in quotes: '{key}=[{value.strip('[]')},{word}]'"
        else:
            example = f"a value with spaces needs quotes inside those of the shell: \"{key}='{value} {word}'\""
        return f"{word}: options are KEY=VALUE; {example}"
    return None


def _several(word: str, *, sweeps: bool) -> str:
    """On `defense=none,marvell`."""
    key, _, value = word.partition("=")
    combines = key in KEYED_NAMES and "[" not in value and "none" not in value.split(",")
    in_one = f"all in one run are '{key}=[{value}]'" if combines else ""
    if sweeps:
        return f"{word}: several values are a sweep, with a run for each: add -m{f'; {in_one}' if in_one else ''}"
    return f"{word}: {in_one or 'it takes one value here'}"


def _ungrammatical(word: str) -> str:
    key, equals, _ = word.partition("=")
    if not equals:
        return f"{word or repr(word)}: options are KEY=VALUE"
    advice = "a value with spaces or special characters needs quotes inside those of the shell"
    return f"{word}: it can't be read; {advice}: \"{key}='a b'\""


def _open(text: str) -> bool:
    """Whether a bracket is opened in it that isn't closed."""
    return any(text.count(a) > text.count(b) for a, b in _PAIRS)
