import pytest
import torch

from vflbench.data.pictures import Digits
from vflbench.metrics import inversion as recogniser
from vflbench.metrics.inversion import Recogniser


@pytest.fixture(scope="module")
def digits():
    data = Digits().load(torch.Generator().manual_seed(0))
    return [(rows.features["a"].numeric.view(-1, 8, 8), rows.labels) for rows in (data.train.all(), data.test.all())]


@pytest.mark.slow
def test_true_pictures_are_recognised_and_noise_is_not(digits):
    (pictures, labels), (unseen, classes) = digits
    trained = Recogniser(pictures, labels, 10, torch.Generator().manual_seed(0))
    assert trained.hits(unseen, classes).mean() > 0.93
    noise = torch.rand(2000, 8, 8, generator=torch.Generator().manual_seed(1))
    assert trained.hits(noise, torch.arange(2000) % 10).mean() < 0.14


def test_the_same_generator_gives_the_same_network_for_colours_too(digits, monkeypatch):
    monkeypatch.setattr(recogniser, "_STEPS", 20)
    (pictures, labels), _ = digits
    colours = pictures[:200, :, :, None].expand(-1, -1, -1, 3)
    one, other = (Recogniser(colours, labels[:200], 10, torch.Generator().manual_seed(3)) for _ in range(2))
    for a, b in zip(one.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)
