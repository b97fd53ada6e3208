"""The access settings of both servers, by their names in broker.conf and namesrv.conf. They are read at the start only.

The TLS settings have RocketMQ's names, which RocketMQ reads as Java system properties. Without accounts, a server
listens only on addresses of this machine, unless a setting allows more.
"""

from typing import Any, Final

from pocketmq.errors import InvalidSetting
from pocketmq.model.setting_keys import NUMBER, PATH, Consequence, Constant, Form, Key
from pocketmq.net import LARGEST_PORT, Address, TlsMode


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


def check_listen_address(address: Address, *, has_accounts: bool, is_open: bool, danger: str) -> None:
    """InvalidSetting for an invalid address, or one that needs authentication. `danger` says what every client could
    do.
    """
    if not 0 <= address.port <= LARGEST_PORT:
        raise InvalidSetting(f"invalid port {address.port}; it must be from 0 (any free port) to {LARGEST_PORT}")
    if address.is_loopback or has_accounts or is_open:
        return
    raise InvalidSetting(
        f"other machines can reach {address.host}, and there is no authentication: every client {danger}. "
        "Set accounts with --accounts FILE (in code: accounts=…), or allow open access with "
        f"{OPEN_FLAG} (in code: open_to_the_network_without_authentication=True)"
    )
