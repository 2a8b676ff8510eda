import struct

import pytest
import torch

from vflbench.generators import Generators


def draw(generators, name, n=4):
    return torch.randn(n, generator=generators[name])


def test_the_same_seed_and_name_give_the_same_numbers_whatever_else_was_drawn():
    first, second, state = Generators(3), Generators(3), torch.get_rng_state()
    draw(first, "data", 1000)
    drawn = draw(first, "model/a")
    assert torch.equal(drawn, draw(second, "model/a"))
    assert not torch.equal(drawn, draw(first, "model/a"))  # it goes on where it stopped
    assert torch.equal(state, torch.get_rng_state())


def test_names_and_seeds_are_independent_streams():
    draws = [draw(Generators(seed), name) for seed in (0, 1, 10) for name in ("data", "model/a", "model/b")]
    assert len({tuple(d.tolist()) for d in draws}) == len(draws)


def test_a_state_that_would_read_beyond_its_words_is_refused():
    generators = Generators(0)
    for count in (1, 100, 624, 625, 10_000):
        for _ in range(count):
            draw(generators, "x", 1)
        again = Generators(1)
        again.restore(generators.state())
        assert torch.equal(draw(again, "x", 3), draw(generators, "x", 3))
    state = generators.state()["cpu"]["x"].numpy().tobytes()
    for left, seeded, place in ((624, 1, 624), (1, 1, 625), (-5, 1, 630), (0, 1, 625), (1, 0, 0), (2**31 - 1, 1, 0)):
        changed = bytearray(state)
        struct.pack_into("<iiQ", changed, 8, left, seeded, place)
        with pytest.raises(ValueError, match="no state of a generator"):
            Generators(0).restore({"cpu": {"x": torch.tensor(list(changed), dtype=torch.uint8)}})
    with pytest.raises(ValueError, match="no state of a generator"):
        Generators(0).restore({"cpu": {"x": torch.zeros(3, dtype=torch.uint8)}})


def test_with_a_secret_no_seed_of_32_bits_gives_the_same_numbers():
    """torch's generator takes 32 bits of a seed: whoever sees noise could try them all, as below the first few of them."""
    for generators, is_guessed in ((Generators(0), True), (secret := Generators(0, secret=b"s" * 32), False)):
        words = generators["defense/a"].get_state()[:8].numpy().tobytes()
        tried = torch.Generator().manual_seed(int.from_bytes(words, "little") & 0xFFFFFFFF)
        assert torch.equal(torch.randn(9, generator=tried), draw(generators, "defense/a", 9)) is is_guessed
    again = Generators(0, secret=b"s" * 32)
    again.restore(secret.state())
    assert torch.equal(draw(again, "defense/a", 9), draw(secret, "defense/a", 9))
    many = torch.rand(100_000, generator=Generators(1, secret=b"u" * 32)["x"], dtype=torch.float64)
    assert abs(many.mean() - 0.5) < 0.005
    assert abs(many.var() - 1 / 12) < 0.002
