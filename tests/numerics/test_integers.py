"""Integers: mixed by a key and back, numbers drawn from them, and packed into as few bits as they need."""

import math

import torch
from scipy import stats

from vflbench.numerics.hashing import laplace, mix, uniform, unmix
from vflbench.numerics.packing import bits_for, pack, packed_bytes, unpack

COUNT = 20_000
IDS = {
    "neighbours": torch.arange(COUNT),
    "every 512th": torch.arange(COUNT) * 512,
    "large": torch.arange(COUNT) + (1 << 61),
    "negative": -torch.arange(COUNT),
}


def test_mixing_agrees_with_python_integers():
    def reference(x, key, mask=(1 << 64) - 1):
        x ^= key
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        x = (x ^ (x >> 31)) ^ key
        return x - (1 << 64) if x >= 1 << 63 else x

    for x in (0, 1, 12345, (1 << 62) + 7):
        assert mix(torch.tensor([x]), 987654321).item() == reference(x, 987654321)


def test_unmix_inverts_mix_and_numbers_of_rows_are_uniform_and_independent_of_the_next_rows():
    for name, ids in IDS.items():
        for key in (0, 1, -1, 0x1234567890ABCDEF):
            u, case = uniform(ids, key), f"{name}, key {key}"
            assert torch.equal(unmix(mix(ids, key), key), ids), case
            assert 0 <= u.min() < u.max() < 1, case
            assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-4, case
            pairs = (u[1:] * 8).long() * 8 + (u[:-1] * 8).long()
            assert stats.chisquare(pairs.bincount(minlength=64).numpy()).pvalue > 1e-4, case
            assert abs(torch.corrcoef(torch.stack([u, ids.double()]))[0, 1].item()) < 5 / math.sqrt(len(u)), case


def test_similar_keys_give_independent_numbers():
    ids = torch.arange(COUNT)
    for key, other in ((1, 2), (1, -1), (7, 7 + (1 << 40)), (0, 1 << 63 >> 1)):
        pairs = (uniform(ids, key) * 8).long() * 8 + (uniform(ids, other) * 8).long()
        assert stats.chisquare(pairs.bincount(minlength=64).numpy()).pvalue > 1e-4, f"keys {key} and {other}"


def test_laplace_is_the_inverse_of_the_distribution_function_and_its_ends_are_as_far_out_as_53_bits_reach():
    u = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    for scale in (0.1, 1.0, 4.0):
        assert torch.allclose(laplace(u, scale), torch.from_numpy(stats.laplace.ppf(u.numpy(), scale=scale)), atol=1e-12)
    ends = laplace(torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64), 1.0)
    assert ends.tolist() == [-53 * math.log(2), 53 * math.log(2)]


def test_unpack_inverts_pack_and_a_payload_has_no_spare_byte(rng):
    for bits in (*range(1, 18), 24, 31, 56):
        for count in (0, 1, 7, 8, 9, 300):
            numbers = torch.randint(2**bits, (count,), generator=rng)
            numbers[:2] = torch.tensor([0, 2**bits - 1])[:count]
            payload, case = pack(numbers, bits), f"{count} numbers of {bits} bits"
            assert payload.dtype is torch.uint8, case
            assert len(payload) == packed_bytes(count, bits) == -(-count * bits // 8), case
            assert torch.equal(unpack(payload, count, bits), numbers), case


def test_eight_numbers_of_three_bits_are_three_bytes_by_hand():
    """Number j has bits 3 j .. 3 j + 2 of the 24, least significant first."""
    numbers = [5, 3, 0, 7, 1, 6, 2, 4]
    whole = sum(number << (3 * place) for place, number in enumerate(numbers))
    assert pack(torch.tensor(numbers), 3).tolist() == list(whole.to_bytes(3, "little"))


def test_bits_per_number():
    assert [bits_for(n) for n in (0, 1, 2, 3, 255, 256)] == [1, 1, 2, 2, 8, 9]
