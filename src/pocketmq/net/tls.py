"""TLS on both sides: contexts that verify unless told otherwise, and how a server shares one port.

    first byte   disabled     permissive        enforcing
    0x16         plain text   TLS               TLS
    other        plain text   plain text        refused in the handshake

0x16 begins every TLS connection and no frame that we accept, so one byte is enough. RocketMQ servers are permissive.
"""

import ssl
from enum import StrEnum
from pathlib import Path

import msgspec

from pocketmq.errors import InvalidSetting

TLS_FIRST_BYTE = b"\x16"


class TlsMode(StrEnum):
    """Whom a server with a certificate lets in."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ServerTls(msgspec.Struct, frozen=True):
    """A server's certificate and how strictly it is used."""

    context: ssl.SSLContext
    mode: TlsMode = TlsMode.PERMISSIVE


def client_context(
    ca: Path | str | None = None, *, cert: Path | str | None = None, key: Path | str | None = None, verify: bool = True
) -> ssl.SSLContext:
    """For connecting: `ca` (else the system's) must have signed the server's certificate, which must name its address.

    `cert` and `key` are shown to a server that asks who we are. Without `verify` anybody may be the server.
    """
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(f"TLS: cannot read the certificates in {ca}: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert is not None:
        _load_chain(context, cert, key)
    return context


def server_context(
    cert: Path | str, key: Path | str | None = None, *, client_ca: Path | str | None = None
) -> ssl.SSLContext:
    """For listening: shows `cert`; with `client_ca`, clients must show a certificate that it signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_chain(context, cert, key)
    if client_ca is not None:
        try:
            context.load_verify_locations(cafile=client_ca)
        except (OSError, ssl.SSLError) as error:
            raise InvalidSetting(f"TLS: cannot read the certificates in {client_ca}: {error}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _load_chain(context: ssl.SSLContext, cert: Path | str, key: Path | str | None) -> None:
    try:
        # Without a callback OpenSSL asks on the terminal for the passphrase of an encrypted key, and waits.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(f"TLS: cannot use certificate {cert} with key {key or cert}: {error}") from error
