"""Folders of recorded messages that a test damages, and how their audit ends."""

import pytest

from vflbench.attacks.norm import Norm
from vflbench.errors import UserError
from vflbench.run.offline import audit


def copied(source, target):
    for path in source.rglob("*"):
        if path.is_file():
            (target / path.relative_to(source)).parent.mkdir(parents=True, exist_ok=True)
            (target / path.relative_to(source)).write_bytes(path.read_bytes())
    return target


def refusal(folder, **attacks):
    """The paragraph with which an audit ends."""
    with pytest.raises(UserError) as caught:
        audit(folder, attacks or {"norm": Norm()}, probe=False)
    text = str(caught.value)
    assert text.isprintable(), text
    assert len(text) < 1200, text
    return text


def one_batch(folder, content, ending="safetensors"):
    """A recording of party a alone, of one shard."""
    for path in (folder / "messages").iterdir():
        path.unlink()
    (folder / "messages" / f"a-0.{ending}").write_bytes(content)
    return folder
