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
from pocketmq.files import DiskFiles

TLS_FIRST_BYTE = b"\x16"
_PEM_END = "-----END CERTIFICATE-----"


class TlsMode(StrEnum):
    """Whom a server with a certificate lets in."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ServerTls(msgspec.Struct, frozen=True):
    """A server's certificate and how strictly it is used."""

    context: ssl.SSLContext
    mode: TlsMode = TlsMode.PERMISSIVE


class ServerTlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What a server shows and asks for, by files. Without a certificate there is no TLS.

    With one, plain text is turned away, unless the mode says otherwise.
    """

    cert: Path | None = None
    """The certificate of the server (PEM). With it, the server speaks TLS."""
    key: Path | None = None
    """The private key (PEM, without a passphrase). None: it is in the file of the certificate."""
    client_ca: Path | None = None
    """The authority that signed the certificates of clients. With it, clients must present a certificate."""
    mode: TlsMode | None = None
    """`enforcing` refuses plain text, `permissive` accepts both, `disabled` speaks no TLS. None: enforcing with a
    certificate."""

    def __post_init__(self) -> None:
        if self.cert is None and (self.key or self.client_ca):
            raise InvalidSetting("TLS: a key or an authority for clients is named, but no certificate of the server")
        if self.client_ca is not None and self.mode is TlsMode.PERMISSIVE:
            raise InvalidSetting("TLS: clients cannot be made to show a certificate where plain text is let in as well")

    @property
    def in_use(self) -> TlsMode:
        return TlsMode.DISABLED if self.cert is None else self.mode or TlsMode.ENFORCING

    def load(self) -> ServerTls | None:
        """Read the files; InvalidSetting when they cannot be used."""
        if self.cert is None or self.in_use is TlsMode.DISABLED:
            return None
        return ServerTls(server_context(self.cert, self.key, client_ca=self.client_ca), self.in_use)


class ClientTlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """How somebody connects: whom it trusts, and what it shows."""

    enabled: bool = False
    """Connect to name servers by TLS."""
    ca: Path | None = None
    """The authority that must have signed the certificate of the server. None: the authorities of this system."""
    cert: Path | None = None
    """The certificate to present to a server that requests one."""
    key: Path | None = None
    """The private key of that certificate."""
    verify: bool = True
    """Verify the certificate of the server. false: do not verify it."""
    pinned: Path | None = None
    """The one certificate that the server must present, instead of an authority."""

    def __post_init__(self) -> None:
        if not self.enabled and (self.ca or self.cert or self.key or self.pinned or not self.verify):
            raise InvalidSetting("TLS: it is said whom to trust or what to show, but not that TLS is to be used")
        if self.key and not self.cert:
            raise InvalidSetting(f"TLS: {self.key} is named as our key, but not the certificate that it belongs to")
        if self.pinned and (self.ca or not self.verify):
            raise InvalidSetting("TLS: either one certificate is trusted, or those of an authority, or any")

    def load(self) -> ssl.SSLContext | None:
        """Read the files; InvalidSetting when they cannot be used."""
        if not self.enabled:
            return None
        if self.pinned is not None:
            return pinned_context(self.pinned, cert=self.cert, key=self.key)
        return client_context(self.ca, cert=self.cert, key=self.key, verify=self.verify)


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


def pinned_context(
    pinned: Path | str, *, cert: Path | str | None = None, key: Path | str | None = None
) -> ssl.SSLContext:
    """For connecting to a server that shows exactly the first certificate in the file `pinned`, whatever name is in it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # this one is trusted by itself, not by who signed it
    try:
        first, end, _ = DiskFiles().read(Path(pinned)).decode("ascii", "ignore").partition(_PEM_END)
        context.load_verify_locations(cadata=first + end)
    except (OSError, ValueError) as error:
        raise InvalidSetting(f"TLS: cannot read the certificate in {pinned}: {error}") from error
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
