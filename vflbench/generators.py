"""One named random generator per purpose, so that drawing for one never shifts another."""

import hashlib
import struct
from collections.abc import Mapping

import torch
from torch import Tensor

_WORDS, _HEAD = 624, 24  # of torch's Mersenne Twister, and bytes before them in a state


class Generators:
    """Generators by name, each seeded from (seed, name) alone.

        state of g[name] = manual_seed(first 8 bytes of SHA-256("seed/name"))

    With a secret, on the CPU, all 624 words of the state are SHAKE-256("seed/name" secret): a seed alone has 32 bits there,
    which somebody who sees the noise could try one by one. The generator itself (MT19937) is no cryptographic one: who knew
    thousands of its numbers could tell the others.

    g["model/a"] gives the same numbers whatever else was drawn. Names in use: data, batches, row names, hints, class hints,
    followed rows, known rows, sampled rows, auxiliary, auxiliary source, canaries, grading, probe, participants,
    model/<party>, model/label/top, model/<party>/training, model/label/top/training, adversary/label, defense/<party>,
    defense/<party>/predicting, attack/<name>/<party>, claim check.
    """

    def __init__(self, seed: int, secret: bytes = b""):
        """secret: what others don't know, where they must not draw the same numbers."""
        self.seed, self._secret = seed, secret
        self._made: dict[tuple[str, str], torch.Generator] = {}

    def __getitem__(self, name: str) -> torch.Generator:
        return self.on(torch.device("cpu"), name)

    def on(self, device: torch.device, name: str) -> torch.Generator:
        """The generator of that name, on that device; the same object at each call."""
        key = (str(device), name)
        if key not in self._made:
            self._made[key] = self._new(device, name)
        return self._made[key]

    def _new(self, device: torch.device, name: str, history: bytes = b"") -> torch.Generator:
        entropy = f"{self.seed}/{name}".encode() + self._secret + history
        if self._secret and device.type == "cpu":
            return unguessable(entropy)
        return torch.Generator(device).manual_seed(int.from_bytes(hashlib.sha256(entropy).digest()[:8]) >> 1)

    def tie(self, history: bytes) -> None:
        """Let what defenses and networks in training draw next follow from the secret and this history: who makes a party do
        something a second time, or go back to an earlier state, gets the same numbers for the same, and others for anything
        else.
        """
        for (device, name), generator in self._made.items():
            if name.startswith("defense/") or name.endswith("/training"):
                generator.set_state(self._new(torch.device(device), name, history).get_state())

    def state(self) -> dict[str, dict[str, Tensor]]:
        """Device -> name -> where that generator stands, of every one that was asked for."""
        states: dict[str, dict[str, Tensor]] = {}
        for (device, name), generator in self._made.items():
            states.setdefault(device, {})[name] = generator.get_state()
        return states

    def restore(self, states: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Raises ValueError or RuntimeError for what is no state of such a generator."""
        for device, named in states.items():
            for name, state in named.items():
                if torch.device(device).type == "cpu":
                    _check_twister(state)
                self.on(torch.device(device), name).set_state(state.clone())


def unguessable(secret: bytes) -> torch.Generator:
    """A generator on the CPU with a state of 19,968 bits that follows from the secret; `manual_seed` takes 32 bits there."""
    generator = torch.Generator()
    state, words = generator.get_state(), hashlib.shake_256(secret).digest(4 * _WORDS)
    kept = torch.tensor(struct.unpack(f"<{_WORDS}I", words), dtype=torch.int64).view(torch.uint8)  # torch keeps 64 bits each
    state[_HEAD : _HEAD + len(kept)] = kept
    return generator.set_state(state)


def _check_twister(state: Tensor) -> None:
    """torch reads words beyond the 624 of its Mersenne Twister where a state says that they are there."""
    if state.dtype != torch.uint8 or state.dim() != 1 or len(state) < 24:
        raise ValueError("it is no state of a generator")
    left, seeded, place = struct.unpack_from("<iiQ", state.contiguous().numpy().tobytes(), 8)
    if seeded != 1 or not ((left + place == 625 and left >= 1) or (left, place) == (1, 0)):
        raise ValueError("it is no state of a generator")
