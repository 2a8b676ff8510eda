import torch
from defenses.contexts import drawing

from vflbench.defenses.vector_quantize import VectorQuantize


def clusters(rng, rows=200):
    """Runs of two coordinates that lie near four corners."""
    corners = torch.tensor([[0.0, 0.0], [0.0, 5.0], [5.0, 0.0], [5.0, 5.0]])
    which = torch.randint(4, (rows, 3), generator=rng)
    return corners[which].view(rows, 6) + 0.01 * torch.randn(rows, 6, generator=rng), corners[which].view(rows, 6)


def test_planted_words_are_learned(rng):
    h, truth = clusters(rng)
    encoded = VectorQuantize(words=4, size=2).embedding(h, drawing(rng))
    assert (encoded.values - truth).abs().max() < 0.01
    assert encoded.nbytes == 200 * 3 * 2 // 8 + 4 * 2 * 4  # two bits a run, and the codebook


def test_the_codebook_is_fixed_after_the_first_batches_and_crosses_until_then(rng):
    defense = VectorQuantize(words=16, size=4, learn_batches=2)
    sizes, books = [], []
    for _ in range(4):
        encoded = defense.embedding(torch.randn(64, 10, generator=rng), drawing(rng))
        sizes.append(encoded.nbytes)
        books.append(encoded.code.words)
    codes = 64 * 3 * 4 // 8  # ten coordinates are three runs, the last one filled up
    assert sizes == [codes + 16 * 4 * 4] * 2 + [codes] * 2
    assert not torch.equal(books[0], books[1])
    assert torch.equal(books[1], books[3])
    assert encoded.values.shape == (64, 10)
    assert len(defense._parts) == 0


def test_more_words_are_never_worse(rng):
    h = torch.randn(300, 16, generator=rng)
    errors = [
        (VectorQuantize(words=k).embedding(h, drawing(rng)).values - h).square().mean().item() for k in (2, 8, 64, 512)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.3 * errors[0]
