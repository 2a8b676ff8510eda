import torch

from vflbench.numerics.packing import bits_for, pack, packed_bytes, unpack


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
