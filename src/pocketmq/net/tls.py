"""TLS for clients and servers: contexts that verify by default, and how a server accepts TLS and plain text on one port.

    first byte   disabled     permissive        enforcing
    0x16         plain text   TLS               TLS
    other        plain text   plain text        rejected in the handshake

0x16 begins every TLS connection, and no frame that we accept, so one byte is enough. RocketMQ servers are permissive by default.
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
    """Which connections a server with a certificate accepts."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ServerTls(msgspec.Struct, frozen=True):
    """The TLS context of a server, and whether plain text is accepted too."""

    context: ssl.SSLContext
    mode: TlsMode = TlsMode.PERMISSIVE


class ServerTlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Certificate files of a server. Without `cert`, TLS is off. With it, plain text is rejected unless `mode` allows it."""

    cert: Path | None = None
    """The certificate of the server (PEM). With it, the server speaks TLS."""
    key: Path | None = None
    """The private key (PEM, without a passphrase). None: the certificate file contains it."""
    client_ca: Path | None = None
    """The authority that signed the certificates of clients. With it, clients must present a certificate."""
    mode: TlsMode | None = None
    """`enforcing` refuses plain text, `permissive` accepts both, `disabled` speaks no TLS. None: enforcing with a
    certificate."""

    def __post_init__(self) -> None:
        if self.cert is None and (self.key or self.client_ca):
            raise InvalidSetting(
                "TLS: a key or a client authority is set without a server certificate; set the certificate too"
            )
        if self.cert is None and self.mode is TlsMode.ENFORCING:
            raise InvalidSetting(
                "TLS: the mode is enforcing, but there is no server certificate; set one, or remove the mode"
            )
        if self.client_ca is not None and self.mode is TlsMode.PERMISSIVE:
            raise InvalidSetting(
                "TLS: client certificates cannot be required in permissive mode, which accepts plain text; use enforcing"
            )

    @property
    def in_use(self) -> TlsMode:
        return TlsMode.DISABLED if self.cert is None else self.mode or TlsMode.ENFORCING

    def load(self) -> ServerTls | None:
        """Read the files. InvalidSetting if one cannot be used."""
        if self.cert is None or self.in_use is TlsMode.DISABLED:
            return None
        return ServerTls(server_context(self.cert, self.key, client_ca=self.client_ca), self.in_use)


class ClientTlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """TLS files of a client: the trusted authority, and a certificate to present."""

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
            raise InvalidSetting("TLS options are set, but TLS is not enabled; enable it or remove them")
        if self.key and not self.cert:
            raise InvalidSetting(f"TLS: the key {self.key} is set without its certificate")
        if self.pinned and (self.ca or not self.verify):
            raise InvalidSetting(
                "TLS: a pinned certificate cannot be combined with an authority or with disabled verification"
            )

    def load(self) -> ssl.SSLContext | None:
        """Read the files. InvalidSetting if one cannot be used."""
        if not self.enabled:
            return None
        if self.pinned is not None:
            return pinned_context(self.pinned, cert=self.cert, key=self.key)
        return client_context(self.ca, cert=self.cert, key=self.key, verify=self.verify)


def client_context(
    ca: Path | str | None = None, *, cert: Path | str | None = None, key: Path | str | None = None, verify: bool = True
) -> ssl.SSLContext:
    """A client context. `ca`, or an authority of the system, must have signed the certificate, which must name the host.

    `cert` and `key` are presented to a server that requests a certificate. `verify=False` disables verification.
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
    """A client context that accepts only the first certificate in the file `pinned`, with any host name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # trust this certificate without its issuer
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
    """A server context that presents `cert`. With `client_ca`, clients must present a certificate that it signed."""
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
        # Without a callback, OpenSSL prompts on the terminal for the passphrase of an encrypted key.
        context.load_cert_chain(cert, key, password=lambda: "")
    except (OSError, ssl.SSLError) as error:
        raise InvalidSetting(f"TLS: cannot use certificate {cert} with key {key or cert}: {error}") from error
