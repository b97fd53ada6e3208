"""The access settings of both servers, by their names in broker.conf and namesrv.conf. They are read at the start only.

The TLS settings have RocketMQ's names, which RocketMQ reads as Java system properties. Without accounts, a server
listens only on addresses of this machine, unless a setting allows more.
"""

from typing import Any, Final

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.model.setting_keys import NUMBER, PATH, Consequence, Constant, Form, Key, require_positive
from pocketmq.net import LARGEST_PORT, Address, TlsMode


class AuthenticationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits on failed authentications."""

    max_failures: int = 100
    """Failed authentications of one address within the window; each further one closes its connection."""
    window_s: int = 60
    """The length of that window, in seconds."""
    max_addresses: int = 10_000
    """Limit on addresses with failures that are remembered."""

    def __post_init__(self) -> None:
        require_positive("authentication", self)


def _tls_mode(text: str) -> TlsMode:
    try:
        return TlsMode(text.lower())
    except ValueError:
        raise ValueError(" or ".join(TlsMode)) from None


def _is_authenticating(settings: Any) -> str:
    return "false" if settings.accounts is None else "true"


def _asks_for_certificates(settings: Any) -> str:
    return "none" if settings.tls.client_ca is None else "require"


KEYS: Final[dict[str, Key]] = {
    "accountsFile": Key("accounts", PATH),
    "maxAuthenticationFailures": Key("authentication.max_failures", NUMBER),
    "authenticationFailureSeconds": Key("authentication.window_s", NUMBER),
    "maxFailingAddresses": Key("authentication.max_addresses", NUMBER),
    "tls.server.mode": Key("tls.mode", Form(_tls_mode)),
    "tls.server.certPath": Key("tls.cert", PATH),
    "tls.server.keyPath": Key("tls.key", PATH),
    "tls.server.trustCertPath": Key("tls.client_ca", PATH),
}

_BY_ACCOUNTS: Final = Consequence(
    _is_authenticating,
    "requests are checked if, and only if, there are accounts: accountsFile=FILE or --accounts FILE",
)
CONSTANTS: Final[dict[str, Constant | Consequence]] = {
    "aclEnable": _BY_ACCOUNTS,
    "authenticationEnabled": _BY_ACCOUNTS,
    "authorizationEnabled": _BY_ACCOUNTS,
    "tls.server.authClient": Consequence(
        _asks_for_certificates,
        "clients need a certificate if, and only if, there is a CA for it: tls.server.trustCertPath or --tls-client-ca",
    ),
    "tls.test.mode.enable": Constant(
        "false", "there are no test certificates; set your own with tls.server.certPath or --tls-cert"
    ),
}


OPEN_FLAG: Final = "--open-to-the-network-without-authentication"


def check_listen_addresses(settings: Any, *, danger: str) -> None:
    """InvalidSetting for an invalid address of a server or its metrics, or one that needs authentication.

    `danger` says what every client could do.
    """
    is_open = settings.open_to_the_network_without_authentication
    check_listen_address(settings.address, is_open=is_open or bool(settings.accounts), danger=danger)
    if settings.metrics.enabled:
        is_open = is_open or settings.metrics.without_authentication
        danger = "may read the names of all topics and groups in the metrics"
        check_listen_address(settings.metrics.address, is_open=is_open or bool(settings.accounts), danger=danger)


def check_listen_address(address: Address, *, is_open: bool, danger: str) -> None:
    if not 0 <= address.port <= LARGEST_PORT:
        raise InvalidSetting(f"invalid port {address.port}; it must be from 0 (any free port) to {LARGEST_PORT}")
    if address.is_loopback or is_open:
        return
    raise InvalidSetting(
        f"other machines can reach {address.host}, and there is no authentication: every client {danger}. "
        "Set accounts with --accounts FILE (in code: accounts=…), or allow open access with "
        f"{OPEN_FLAG} (in code: open_to_the_network_without_authentication=True)"
    )
