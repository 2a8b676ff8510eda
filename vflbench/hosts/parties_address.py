"""Where the label party of a project is, and whether it takes a party's certificate."""

import json
import socket
import ssl
from typing import Any

from vflbench.engines.nvflare.kit import LABEL_PARTY, Kit
from vflbench.errors import UserError

_UNREACHABLE = "the label party can't be reached: {}; has it started, is the port open?"
_PATIENCE = 5.0  # seconds until a host counts as not reachable


class UnreachableError(UserError):
    """Nobody answers there."""


def settings_of(kit: Kit) -> dict[str, Any]:
    """FLARE's settings in startup/: of the server, or of a client."""
    name = "fed_server.json" if kit.party == LABEL_PARTY else "fed_client.json"
    try:
        content = json.loads((kit.folder / "startup" / name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"it is no kit of `vflbench parties write`: {error}", key="kit", value=kit.folder) from error
    return dict(content)


def address_of(kit: Kit) -> tuple[str, int]:
    """Host and port of the label party."""
    host, _, port = settings_of(kit)["servers"][0]["service"]["target"].rpartition(":")
    return host, int(port)


def refuse_stranger(kit: Kit) -> None:
    """Raise UserError where nothing listens at the label party's address, or one side's certificate isn't the project's."""
    startup, (host, port) = kit.folder / "startup", address_of(kit)
    key = f"{host}:{port}"
    try:
        context = ssl.create_default_context(cafile=startup / "rootCA.pem")
        context.check_hostname = False  # FLARE looks at the name in the certificate
        context.load_cert_chain(startup / "client.crt", startup / "client.key")
        with socket.create_connection((host, port), timeout=_PATIENCE) as plain, context.wrap_socket(plain) as secured:
            secured.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answered = secured.recv(1)  # in TLS 1.3 a certificate is refused only now
            if not answered:
                raise ConnectionResetError
    except ssl.SSLCertVerificationError as error:
        raise UserError("who answers there has no certificate of this project", key=key) from error
    except (ssl.SSLError, ConnectionError) as error:
        if isinstance(error, ConnectionRefusedError):
            raise UnreachableError(_UNREACHABLE.format("nobody listens there"), key=key) from error
        problem = "it refuses this party's certificate; is this folder of the same project, and still valid?"
        raise UserError(problem, key=key) from error
    except OSError as error:
        raise UnreachableError(_UNREACHABLE.format(error.strerror or error), key=key) from error
