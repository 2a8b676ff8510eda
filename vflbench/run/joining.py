"""Parties that live elsewhere join a run."""

from collections.abc import Callable, Mapping

import torch

from vflbench import __version__
from vflbench.defenses.chain import Chain
from vflbench.messages.channel import Channel, PartyError, at_once
from vflbench.protocols.remote_party import Announced, RemoteParty


def joined(
    channels: Mapping[str, Channel],
    defense: Callable[[], Chain],
    classes: int,
    batch_size: int,
    device: torch.device,
    *,
    cheating: bool = False,
) -> dict[str, RemoteParty]:
    """The parties at the ends of these channels, in this order. defense: returns a fresh instance at each call. cheating:
    whether parties with an adversary cheat; beside such a run there is an honest one. Raises PartyError for one that can't
    take part.
    """
    request = {"version": __version__, "classes": classes, "batch_size": batch_size, "cheating": cheating}
    said = at_once(lambda channel: channel.call("hello", request), list(channels.values()))
    parties = {}
    for (name, channel), content in zip(channels.items(), said, strict=True):
        try:
            announced = Announced(**content)
        except (TypeError, ValueError) as error:
            raise PartyError(name, f"it says no names and sizes of columns and layers ({error})") from error
        parties[name] = RemoteParty(channel, announced, defense, device)
    return parties
