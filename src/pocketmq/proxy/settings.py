"""Every limit and interval of the gRPC server, by default those of Apache RocketMQ's proxy where it has them.

`--grpc-set NAME=VALUE` of `pocketmq serve`, `--set` of `pocketmq proxy` and `grpc_settings` of `pocketmq.Server` change them.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec.structs import replace

from pocketmq.access.settings import AuthenticationSettings, check_listen_addresses
from pocketmq.errors import InvalidSetting
from pocketmq.metrics.page import MetricsSettings
from pocketmq.model.names import suggestion
from pocketmq.model.setting_keys import require_positive
from pocketmq.net import Address, ServerTlsFiles
from pocketmq.protocol.signing import Credentials

DEFAULT_PORT: Final = 8081
KIB: Final = 1024
MIB: Final = 1024 * KIB


class ProxySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Address, access and limits."""

    host: str = "127.0.0.1"
    """The address that the server listens on."""
    port: int = DEFAULT_PORT
    """The port that the server listens on. 0: any free port."""
    name_servers: str = ""
    """The name servers of the cluster, separated by `;`."""
    credentials: Credentials | None = None
    """With these, requests to brokers are signed if clients do not sign theirs."""
    accounts: Path | None = None
    """The file of accounts. With it, every call must be signed. It is read again when it changes."""
    authentication: AuthenticationSettings = AuthenticationSettings()
    tls: ServerTlsFiles = ServerTlsFiles()
    cluster_tls: bool | ssl.SSLContext = False
    """TLS of the connections to name servers and brokers."""
    open_to_the_network_without_authentication: bool = False
    """Required to listen without `accounts` where other machines can connect."""
    metrics: MetricsSettings = MetricsSettings()

    # messages
    max_body_bytes: int = 4 * MIB
    """The largest body of a message. Clients learn it from their settings."""
    max_properties: int = 128
    """The most user properties of a message."""
    max_properties_bytes: int = 16 * KIB
    """The largest size of user properties, tag and keys together."""
    max_group_bytes: int = 64
    """The longest message group."""
    max_delay_s: int = 24 * 3600
    """The longest delay of a message."""
    max_recovery_s: int = 3600
    """The longest time before a transaction of a client is checked."""
    max_half_messages: int = 100_000
    """Open transactions that are remembered. The oldest one is dropped then: it is decided by a check-back."""

    # receiving
    receive_batch: int = 32
    """The most messages of one receive."""
    min_polling_s: int = 5
    """The shortest wait of a receive that finds no message."""
    max_polling_s: int = 20
    """The longest one."""
    min_invisible_s: int = 10
    """The shortest lease that a receive may request."""
    max_invisible_s: int = 12 * 3600
    """The longest lease."""
    renewed_s: int = 60
    """The first lease of messages whose leases this server renews."""
    renew_for_s: int = 3 * 3600
    """How long it renews the lease of one message."""
    max_renewed: int = 1_000_000
    """Leases that are renewed, of all clients. The lease of a further message ends after `renewed_s`."""

    # clients and connections
    max_clients: int = 10_000
    """Clients that are known at a time. A further one gets TOO_MANY_REQUESTS."""
    max_receives: int = 20_000
    """Receives that wait at a time. A further one gets TOO_MANY_REQUESTS."""
    max_calls_per_connection: int = 1_000
    """Calls and streams of one connection that are open at a time. Further ones wait in the client."""
    max_request_bytes: int = 16 * MIB
    """The largest request."""
    max_metadata_bytes: int = 16 * KIB
    """The largest metadata of a request."""
    client_idle_s: int = 120
    """A client without a call for so long is forgotten, and leaves its groups."""
    lost_after_s: int = 30
    """The same for a client whose telemetry stream has ended."""
    connection_idle_s: int = 120
    """A connection without a call or stream is closed after this time."""
    min_ping_s: int = 10
    """Clients may ping so often; one that pings more often is disconnected."""
    command_s: int = 5
    """How long a client has to answer a command for a stack trace or a verification."""
    call_s: int = 3
    """The time limit of a request to a broker or a name server."""
    cached_s: int = 20
    """How long the type of a topic and the settings of a group are cached."""
    drain_s: float = 1.0
    """How long a shutdown waits for running calls."""

    def __post_init__(self) -> None:
        require_positive("gRPC server", self, may_be_zero=("port",))
        check_listen_addresses(self, danger="may read and send messages")

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)

    def changed(self, values: Mapping[str, str | float]) -> Self:
        """These settings with other limits and intervals. InvalidSetting names a value that is not possible."""
        known = limits()
        changes: dict[str, float] = {}
        for name, value in values.items():
            if name not in known:
                raise InvalidSetting(f"the gRPC server has no setting {name!r}; {suggestion(name, known)}")
            kind = type(known[name])
            try:
                changes[name] = kind(value)
            except ValueError:
                number = "a whole number" if kind is int else "a number"
                raise InvalidSetting(f"setting {name} = {value!r} of the gRPC server must be {number}") from None
        return replace(self, **changes)


def limits() -> dict[str, float]:
    """The limits and intervals, with their defaults."""
    fields = zip(ProxySettings.__struct_fields__, ProxySettings.__struct_defaults__, strict=True)
    return {name: default for name, default in fields if type(default) in (int, float) and name != "port"}
