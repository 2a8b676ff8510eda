import torch

from vflbench.generators import Generators


def draw(generators, name, n=4):
    return torch.randn(n, generator=generators[name])


def test_the_same_seed_and_name_give_the_same_numbers_whatever_else_was_drawn():
    first, second = Generators(3), Generators(3)
    draw(first, "data", 1000)
    assert torch.equal(draw(first, "model/a"), draw(second, "model/a"))


def test_names_and_seeds_are_independent_streams():
    draws = [draw(Generators(seed), name) for seed in (0, 1, 10) for name in ("data", "model/a", "model/b")]
    assert len({tuple(d.tolist()) for d in draws}) == len(draws)


def test_a_name_goes_on_where_it_stopped_and_leaves_the_global_generator_alone():
    generators, state = Generators(0), torch.get_rng_state()
    assert not torch.equal(draw(generators, "x"), draw(generators, "x"))
    assert torch.equal(state, torch.get_rng_state())
