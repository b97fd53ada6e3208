"""The settings of replication, by their names in broker.conf. RocketMQ has defaults for all of them but `haSlaveHosts`."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from pocketmq.errors import InvalidSetting
from pocketmq.model.setting_keys import NUMBER, SWITCH, Form, Key, read_number
from pocketmq.net import LARGEST_PORT, Address

MIB: Final = 1024 * 1024
S = TypeVar("S", bound=Any)
NO_SLAVES: Final = -1
ABOVE_LISTEN_PORT: Final = 0
"""As a port: serve no slaves."""
LARGEST_TRANSFER_BYTES: Final = 16 * MIB
"""Limit on transfer_bytes: a slave keeps a whole frame in memory."""


class Role(StrEnum):
    """What a broker is in its group of brokers with one name."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


class ReplicationSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a broker copies its log to slaves; see `replication`."""

    port: int = NO_SLAVES
    """The port for slaves. -1: serve no slaves, which is the default without `brokerRole`. 0, or only `brokerRole`:
    `listenPort` + 1, or any free port if `listenPort` is 0."""
    advertised_host: str | None = None
    """The address that slaves connect to, if it is not the address for clients."""
    slave_hosts: tuple[str, ...] = ()
    """The IP addresses from which slaves may connect, separated by `;`. None: any. Required with `accounts` if other machines
    can reach the port, because the stream to slaves has no authentication."""
    master: Address | None = None
    """The address from which a slave copies the log. None: the one that the name servers report."""
    in_sync_replicas: int = 1
    """With SYNC_MASTER: how many brokers must have a message before its send is answered, with the master. At least 2 in effect."""
    slave_timeout_ms: int = 3_000
    """With SYNC_MASTER: a send that waits longer for slaves is answered with FLUSH_SLAVE_TIMEOUT, in ms."""
    metadata_ms: int = 5_000
    """How often a slave asks its master for topics, groups, offsets and the progress of deliveries, in ms."""
    transfer_bytes: int = 32 * 1024
    """Limit on the bytes of the log in one frame to a slave."""
    heartbeat_ms: int = 5_000
    """A slave gets a frame without bytes after this time without others, in ms."""
    silence_ms: int = 20_000
    """The connection to a slave or master that is silent for this long is closed, in ms."""
    limits_rate: bool = False
    """Send each slave at most `maxHaTransferByteInSecond`."""
    max_bytes_per_s: int = 100 * MIB
    """That limit, in bytes."""
    max_gap_bytes: int = 256 * MIB
    """A slave that is further behind, in bytes, counts as not in sync."""

    @property
    def serves(self) -> bool:
        """Whether the broker listens for slaves."""
        return self.port != NO_SLAVES

    def __post_init__(self) -> None:
        if not NO_SLAVES <= self.port <= LARGEST_PORT:
            raise InvalidSetting(
                f"replication setting port = {self.port} must be from -1 (no slaves) to {LARGEST_PORT}"
            )
        for name in (
            "in_sync_replicas",
            "slave_timeout_ms",
            "metadata_ms",
            "transfer_bytes",
            "heartbeat_ms",
            "silence_ms",
            "max_bytes_per_s",
            "max_gap_bytes",
        ):
            if getattr(self, name) <= 0:
                raise InvalidSetting(f"replication setting {name} = {getattr(self, name)} must be above 0")
        if self.transfer_bytes > LARGEST_TRANSFER_BYTES:
            raise InvalidSetting(f"haTransferBatchSize={self.transfer_bytes} must be at most {LARGEST_TRANSFER_BYTES}")


def check_who_may_replicate(settings: Any) -> None:
    """InvalidSetting if every machine could read all messages, although clients need an account."""
    replication = settings.replication
    if not replication.serves or not settings.accounts or settings.address.is_loopback or replication.slave_hosts:
        return
    raise InvalidSetting(
        f"other machines can reach {settings.host}, and the stream to slaves has no authentication: every program there could "
        "read all messages. Name the IP addresses of the slaves with haSlaveHosts=…, or remove haListenPort"
    )


def follow_listen_port(settings: S, properties: Mapping[str, str], warnings: list[str]) -> S:
    """RocketMQ's masters serve slaves one port above `listenPort`, if `haListenPort` names no other."""
    named = properties.get("haListenPort", "").strip()
    if settings.role is Role.SLAVE:
        return settings
    if (named and named != "0") or not (named or "brokerRole" in properties):
        return settings
    try:
        return replace(settings, replication=replace(settings.replication, port=ABOVE_LISTEN_PORT))
    except InvalidSetting as error:
        warnings.append(f"slaves are not served: {error}")
        return settings


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(host for part in text.split(";") if (host := part.strip()))


def check_role(settings: Any) -> None:
    """InvalidSetting if the id does not fit the role. A slave keeps `haListenPort` for the day when it is a master."""
    if (settings.role is Role.SLAVE) != bool(settings.broker_id):
        raise InvalidSetting(
            f"brokerRole={settings.role} cannot have brokerId={settings.broker_id}: a master has 0, a slave 1 or above"
        )


def make_master(properties: dict[str, str]) -> list[str]:
    """RocketMQ gives every master the id 0, too. With another id, name servers would list a slave, and producers would refuse to send."""
    number = properties.get("brokerId", "").strip()
    if not (number.isdecimal() and int(number)) or properties.get("brokerRole", "").strip() == Role.SLAVE:
        return []
    properties["brokerId"] = "0"
    return [f"brokerId={number} is replaced by 0: this broker is a master; a slave has brokerRole=SLAVE"]


def _role(text: str) -> Role:
    try:
        return Role(text)
    except ValueError:
        raise ValueError(" or ".join(Role)) from None


def _address(text: str) -> Address | None:
    return Address.parse(text) if text else None


_HOSTS: Final = Form(_hosts, ";".join)
_HOST: Final = Form(lambda text: text or None)


def _port(text: str) -> int:
    return NO_SLAVES if text == str(NO_SLAVES) else read_number(text)


_ROLE: Final = "the store is already open as that of a master or a slave"


def keys(why_not: str) -> dict[str, Key]:
    """The keys by RocketMQ's names; `why_not`: why the port cannot change at run time."""
    return {
        "brokerRole": Key("role", Form(_role), why_not=_ROLE),
        "haMasterAddress": Key("replication.master", Form(_address), why_not=_ROLE),
        "haListenPort": Key("replication.port", Form(_port), why_not=why_not),
        "brokerIP2": Key("replication.advertised_host", _HOST, why_not=why_not),
        "haSlaveHosts": Key("replication.slave_hosts", _HOSTS, why_not=why_not),
        "inSyncReplicas": Key("replication.in_sync_replicas", NUMBER, at_run_time=True),
        "slaveTimeout": Key("replication.slave_timeout_ms", NUMBER, at_run_time=True),
        "syncBrokerMetadataPeriod": Key("replication.metadata_ms", NUMBER, at_run_time=True),
        "haTransferBatchSize": Key("replication.transfer_bytes", NUMBER, at_run_time=True),
        "haSendHeartbeatInterval": Key("replication.heartbeat_ms", NUMBER, at_run_time=True),
        "haHousekeepingInterval": Key("replication.silence_ms", NUMBER, at_run_time=True),
        "haFlowControlEnable": Key("replication.limits_rate", SWITCH, at_run_time=True),
        "maxHaTransferByteInSecond": Key("replication.max_bytes_per_s", NUMBER, at_run_time=True),
        "haMaxGapNotInSync": Key("replication.max_gap_bytes", NUMBER, at_run_time=True),
    }
