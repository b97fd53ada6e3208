"""The settings about access that both servers have, by their names in broker.conf and namesrv.conf.

Those of TLS have RocketMQ's names, which it reads as properties of the Java program. All of them count at the start only.
"""

from typing import Any, Final

from pocketmq.model.setting_keys import NUMBER, PATH, Consequence, Constant, Form, Key
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
