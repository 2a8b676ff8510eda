"""Parties that live elsewhere join a run."""

from collections.abc import Callable, Mapping

import torch

from vflbench import __version__
from vflbench.defenses.chain import Chain
from vflbench.messages.channel import Channel, PartyError
from vflbench.protocols.remote_party import Announced, RemoteParty, at_once


def joined(
    channels: Mapping[str, Channel], defense: Callable[[], Chain], classes: int, batch_size: int, device: torch.device
) -> dict[str, RemoteParty]:
    """The parties at the ends of these channels, in this order. defense: returns a fresh instance at each call. Raises
    PartyError for one that can't take part.
    """
    request = {"version": __version__, "classes": classes, "batch_size": batch_size}
    said = at_once(lambda channel: channel.call("hello", request), list(channels.values()))
    parties = {}
    for (name, channel), content in zip(channels.items(), said, strict=True):
        try:
            announced = Announced(**content)
        except (TypeError, ValueError) as error:
            raise PartyError(name, f"it says no names and sizes of columns and layers ({error})") from error
        parties[name] = RemoteParty(channel, announced, defense, device)
    return parties
