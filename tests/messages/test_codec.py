import pytest
import torch

from vflbench.messages.codec import Codebook, Encoded, Grid, largest


@pytest.mark.parametrize(("kept", "bits"), [(3, 3 * 5), (10, 20)], ids=["by index", "by a bit a coordinate"])
def test_real_numbers_and_their_places_survive_the_bytes(rng, kept, bits):
    h = torch.randn(9, 20, generator=rng)
    places = largest(h, kept)
    encoded = Encoded(20, h.gather(1, places), places=places)
    assert encoded.nbytes == 9 * kept * 4 + -(-9 * bits // 8)
    expected = torch.where(h.abs() >= h.abs().sort(dim=1, descending=True).values[:, kept - 1 : kept], h, 0.0)
    assert torch.equal(encoded.values, expected)
    assert torch.equal(encoded.corrected, expected)


def test_the_receiver_reads_the_bytes_and_nothing_else(rng):
    codes, announced = torch.randint(5, (4, 6), generator=rng), torch.tensor([-1.0, 1.0])
    encoded = Encoded(6, codes, Grid.over(-1.0, 1.0, 5), announced=announced)
    assert encoded.payload[:8].view(torch.float32).tolist() == [-1.0, 1.0]
    encoded.payload[8:] = 0  # after the range, which comes first
    assert torch.equal(encoded.values, torch.full((4, 6), -1.0))


@pytest.mark.parametrize("corrected", [False, True])
def test_the_mean_of_the_noise_is_taken_off_in_reading_or_in_training(corrected):
    grid = Grid(low=-1.0, step=0.5, levels=5, top=4 + 10, noise_mean=5.0, corrected=corrected)
    encoded = Encoded(2, torch.tensor([[7, 0]]), grid)
    assert encoded.corrected.tolist() == [[0.0, -3.5]]
    assert encoded.values.tolist() == ([[0.0, -3.5]] if corrected else [[2.5, -1.0]])
    assert encoded.is_biased is not corrected
    assert encoded.nbytes == 1  # two numbers of four bits


def test_the_same_rule_for_other_embeddings(rng):
    h, other = torch.randn(5, 8, generator=rng), torch.randn(7, 8, generator=rng)
    places, grid = largest(h, 2), Grid.over(-2.0, 2.0, 9)
    both = Encoded(8, grid.codes(h.gather(1, places)), grid, places)
    assert torch.equal(both.compress(h), both.values)
    assert ((both.compress(other) != 0).sum(dim=1) <= 2).all()
    book = Codebook(torch.randn(6, 3, generator=rng))
    words = Encoded(8, book.codes(h), book)
    assert torch.equal(words.compress(h), words.values)
    parts = torch.nn.functional.pad(h, (0, 1)).view(-1, 3)
    assert torch.equal(book.codes(h).view(-1), torch.cdist(parts, book.words).argmin(dim=1))
