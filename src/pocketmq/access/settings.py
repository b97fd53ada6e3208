"""The settings about access that both servers have, by their names in broker.conf and namesrv.conf.

Those of TLS have RocketMQ's names, which it reads as properties of the Java program. All of them count at the start only.

Where a server may listen: without accounts, only on addresses of this machine, unless a setting allows more.
"""

from typing import Any, Final

from pocketmq.errors import InvalidSetting
from pocketmq.model.setting_keys import NUMBER, PATH, Consequence, Constant, Form, Key
from pocketmq.net.address import LARGEST_PORT, Address
from pocketmq.net.tls import TlsMode


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
    "requests are checked when, and only when, accounts are named by accountsFile=FILE or --accounts FILE",
)
CONSTANTS: Final[dict[str, Constant | Consequence]] = {
    "aclEnable": _BY_ACCOUNTS,
    "authenticationEnabled": _BY_ACCOUNTS,
    "authorizationEnabled": _BY_ACCOUNTS,
    "tls.server.authClient": Consequence(
        _asks_for_certificates,
        "clients must show a certificate when, and only when, tls.server.trustCertPath or --tls-client-ca names who signed it",
    ),
    "tls.test.mode.enable": Constant(
        "false", "there are no test certificates; name your own by tls.server.certPath or --tls-cert"
    ),
}


OPEN_FLAG: Final = "--open-to-the-network-without-authentication"


def check_door(address: Address, *, has_accounts: bool, is_open: bool, danger: str) -> None:
    """InvalidSetting for an address that cannot be, or that would let strangers in; `danger` is what they could do then."""
    if not 0 <= address.port <= LARGEST_PORT:
        raise InvalidSetting(f"port {address.port} is none; it must be from 0 (any free one) to {LARGEST_PORT}")
    if address.is_loopback or has_accounts or is_open:
        return
    raise InvalidSetting(
        f"{address.host} can be reached by other machines, and there is no authentication: whoever reaches this {danger}. "
        "Name accounts with --accounts FILE (in code: accounts=…); or, if that is meant, say so with "
        f"{OPEN_FLAG} (in code: open_to_the_network_without_authentication=True)"
    )
