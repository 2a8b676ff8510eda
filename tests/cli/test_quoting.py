"""Command lines that the shell has split, or that lack -m: the message says what to type."""

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import OverrideParseException

from vflbench.cli.mistakes import quoting_mistake, split_word

SPLIT = [
    ("attack=[norm, spectral]", "'attack=[norm, spectral]'"),
    ("seed=1 attack=[norm, spectral, direct] epochs=1", "'attack=[norm, spectral, direct]'"),
    ("attack={norm: {top: 0.1}}", "'attack={norm: {top: 0.1}}'"),
    ("defense=none, marvell", "leave out the space behind it: defense=none,marvell"),
    ("attack=norm spectral", "'attack=[norm,spectral]'"),
    ("name=a b", "\"name='a b'\""),
    ("attack=[norm seed=1", "attack=[norm: a bracket is not closed"),
]


@pytest.mark.parametrize(("line", "expected"), SPLIT)
def test_the_answer_to_a_split_word_can_be_typed(line, expected):
    words = ["vflbench train", *line.split()]
    with pytest.raises(OverrideParseException) as refused:
        OverridesParser.create().parse_overrides(words[1:])
    told = quoting_mistake(str(refused.value), refused.value.override, words)
    assert expected in told
    assert "hydra" not in told


def test_whole_words_are_no_split_ones():
    assert split_word(["vflbench", "audit", "recorded"], ["attack=[norm,cosine]"]) is None
    assert quoting_mistake("Could not override 'epoch'", "epoch=3", ["vflbench train", "epoch=3"]) is None


@pytest.mark.parametrize(
    ("word", "command", "expected"),
    [
        ("attack=norm,cosine", "train", "add -m; all in one run are 'attack=[norm,cosine]'"),
        ("defense=none,marvell", "train", "add -m"),  # none beside others is no chain of defenses
        ("attack=norm,cosine", "audit", "all in one run are 'attack=[norm,cosine]'"),
        ("dataset=digits,bank", "prepare", "it takes one value here"),
    ],
)
def test_several_values_are_a_sweep_where_there_are_sweeps(word, command, expected):
    text = f"Ambiguous value for argument '{word}' 1. To use it as a list, use key=[value1,value2]"
    told = quoting_mistake(text, "", [f"vflbench {command}"])
    assert told.endswith(expected)
