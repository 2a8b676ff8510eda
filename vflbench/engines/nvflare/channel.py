"""The way from the label party to another party through FLARE's Collab API: a method's name and bytes, each way."""

import threading
from typing import Any

from nvflare.apis.signal import Signal
from nvflare.collab.api.exceptions import CollabCallError, RunAborted

from vflbench.engines.nvflare.job import MORE
from vflbench.messages.serialize import Content, decode, encode
from vflbench.messages.wire import PartyError

MIB = 1 << 20
_PATIENCE = 5.0  # seconds after which a party says that it is still at work
TIMED_OUT = "TimeoutError"


class CollabChannel:
    """Calls the one method that a `PartySite` publishes.

    proxy: FLARE's stand-in for the site. timeout: seconds without a sign of life after which a call fails. most: bytes that
    a message may have. Calls may come from several threads; those to one party come one after the other.
    """

    def __init__(self, party: str, site: str, proxy: Any, timeout: float, most: int):
        self._party, self._site, self._proxy, self._timeout, self._most = party, site, proxy, timeout, most
        self._turn = threading.Lock()
        self._gone = ""
        self._abort = Signal(parent=proxy.backend.abort_signal)
        proxy.backend.abort_signal = self._abort

    @property
    def party(self) -> str:
        return self._party

    def give_up(self, why: str) -> None:
        """End the call that is under way, and refuse later ones: somebody saw that the party is gone."""
        self._gone = why
        self._abort.trigger(True)

    def call(self, method: str, content: Content) -> Content:
        payload = encode(content)
        if len(payload) > self._most:
            raise PartyError(self._party, f"its {method} takes {_megabytes(len(payload))}, and {self._limit()}")
        with self._turn:
            answer = self._answer(method, self._called(method, payload))
            while answer.get("pending") is True:
                answer = self._answer(method, self._called(MORE, b""))
        refused, said = answer.get("refused"), answer.get("content")
        if type(refused) is str:
            raise PartyError(self._party, refused)
        if type(said) is not dict:
            raise PartyError(self._party, f"it answers {method!r} with nothing")
        return said

    def _called(self, method: str, payload: bytes) -> Any:
        """What comes back. A party that is at work says so before the timeout."""
        if self._gone:
            raise PartyError(self._party, self._gone)
        patience = round(1000 * min(_PATIENCE, self._timeout / 3))
        try:
            return self._proxy(timeout=self._timeout).call(method=method, payload=payload, patience_ms=patience)
        except RunAborted as error:
            raise PartyError(self._party, self._gone or "FLARE ended the job") from error
        except CollabCallError as error:
            raise PartyError(self._party, self._gone or self._failure(method, error)) from error

    def _failure(self, method: str, error: CollabCallError) -> str:
        """What FLARE says of a call that didn't come back, and what to do."""
        cause = str(error.cause)
        if error.cause_type == TIMED_OUT or "timeout" in cause.lower() or "timed out" in cause.lower():
            return (
                f"it has not answered {method!r} for {self._timeout:g} seconds; see whether its process runs and can be "
                f"reached, or give it more time with engine.timeout, and run the same command again"
            )
        if "exceeds configured limit" in cause:
            return f"a message of {method!r} is too large, as {self._limit()}"
        short = " ".join(cause.split())[:200]
        return f"its {method!r} failed within FLARE ({short}); its own log says more ({self._site})"

    def _answer(self, method: str, reply: Any) -> Content:
        if type(reply) is not bytes:
            raise PartyError(self._party, f"it answers {method!r} with {type(reply).__name__} and not with bytes")
        try:
            return decode(reply, self._most)
        except ValueError as error:
            raise PartyError(self._party, f"it answers {method!r} with what is no message ({error})") from error

    def _limit(self) -> str:
        return f"engine.max_message_mib={self._most // MIB} is the most; a smaller batch_size makes smaller messages"


def _megabytes(count: int) -> str:
    return f"{count / MIB:.1f} MiB"
