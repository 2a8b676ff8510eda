import pytest
import torch

from vflbench.numerics.packing import bits_for, pack, packed_bytes, unpack


@pytest.mark.parametrize("bits", [*range(1, 18), 24, 31, 56])
@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 300])
def test_what_was_packed_comes_back_from_as_many_bits_as_it_takes(rng, bits, count):
    numbers = torch.randint(2**bits, (count,), generator=rng)
    numbers[:2] = torch.tensor([0, 2**bits - 1])[:count]
    payload = pack(numbers, bits)
    assert payload.dtype is torch.uint8
    assert len(payload) == packed_bytes(count, bits) == -(-count * bits // 8)
    assert torch.equal(unpack(payload, count, bits), numbers)


def test_eight_numbers_of_three_bits_are_the_three_bytes_one_writes_by_hand():
    """Number j has bits 3 j .. 3 j + 2 of the 24, least significant first."""
    numbers = [5, 3, 0, 7, 1, 6, 2, 4]
    whole = sum(number << (3 * place) for place, number in enumerate(numbers))
    assert pack(torch.tensor(numbers), 3).tolist() == list(whole.to_bytes(3, "little"))


def test_the_least_bits_that_hold_a_number():
    assert [bits_for(n) for n in (0, 1, 2, 3, 4, 255, 256, 513)] == [1, 1, 2, 2, 3, 8, 9, 10]


def test_a_payload_of_another_length_is_refused():
    with pytest.raises(ValueError, match="9 numbers of 3 bits take 4 bytes, and there are 3"):
        unpack(torch.zeros(3, dtype=torch.uint8), 9, 3)
