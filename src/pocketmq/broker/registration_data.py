"""Registration data: the requests that register a broker's identity and topics with a name server.

    first, and at each interval ─────► all topics            a name server without this broker rejects a single one
    a few of many topics changed ────► each of these, in addition

A name server treats two or more topics as the whole table, so changed topics are registered one by one. This is cheaper
only while they are few, because the cost of all topics grows with the table.

A name server accepts topics only if the version differs from the one it has. So each request has a version of its own:
parts of a large table, single topics, and a change of the broker's permission, which changes all topics.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from pocketmq.broker.reads.replicas import KnownMaster
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.net import Address
from pocketmq.protocol.api.administration import ForBroker, RegisterBroker, RegisterBrokerReply
from pocketmq.protocol.bodies.registration import RegisterBrokerBody, write_registration
from pocketmq.protocol.bodies.topics import KVTable, MappedTopicTable, TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.signing import signed_fields

MAX_TOPICS_PER_REQUEST: Final = 20_000
"""Limit on topics in one request, which must fit into a frame; a larger table is sent in parts."""

SINGLE_COST: Final = 32
"""A request for a single topic costs as much as this many topics of a large one."""

_CRC_MASK: Final = 0x7FFF_FFFF


class RegistrationData:
    """Makes the requests and applies the answers. At most `max_per_request` topics in one request."""

    def __init__(
        self,
        settings: SettingsInUse,
        topics: TopicTable,
        clock: Clock,
        *,
        max_per_request: int = MAX_TOPICS_PER_REQUEST,
        master: KnownMaster | None = None,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._max_per_request = max_per_request
        self._master = master
        self._permission = settings.now.permission
        self._permission_ms = 0

    def permission_changed(self) -> bool:
        """Whether the broker's permission has changed since the last call."""
        permission = self._settings.now.permission
        if permission == self._permission:
            return False
        self._permission, self._permission_ms = permission, self._clock.now_ms()
        return True

    def are_single_requests_cheaper(self, changed: int) -> bool:
        """Whether requests for each changed topic are cheaper than one for all topics."""
        return changed == 1 or changed * SINGLE_COST <= len(self._topics)

    def register(self, own: Address, changed: Iterable[TopicConfig] = ()) -> list[Command]:
        """The requests for all topics, or for the changed ones; `own` is the address for clients."""
        parts = [[row] for row in changed] or list(_parts(self._topics.groups_last(), self._max_per_request))
        return [self._register(own, table) for table in self._tables(parts)]

    def unregister(self, own: Address) -> Command:
        settings = self._settings.now
        header = ForBroker(settings.broker_name, str(own), settings.cluster, settings.broker_id)
        return self._signed(RequestCode.UNREGISTER_BROKER, header.encode())

    def apply_answer(self, answer: Command, name_server: Address) -> int:
        """Apply the order config and, for a slave, the master in an answer. Return the number of rejected topics."""
        reply = RegisterBrokerReply.decode(answer.ext)
        if self._settings.now.is_slave:
            if self._master is not None:
                self._master.report(name_server, reply.master_addr, reply.ha_server_addr)
        elif answer.body:
            self._topics.mark_ordered(KVTable.decode(answer.body).table, self._clock.now_ms())
        return reply.topics_rejected or 0

    def _register(self, own: Address, table: MappedTopicTable) -> Command:
        settings, replication = self._settings.now, self._settings.now.replication
        body = write_registration(RegisterBrokerBody(table))
        header = RegisterBroker(
            broker_name=settings.broker_name,
            broker_addr=str(own),
            cluster_name=settings.cluster,
            ha_server_addr=str(
                Address(
                    replication.advertised_host or own.host, replication.port if replication.serves else own.port + 1
                )
            ),
            broker_id=settings.broker_id,
            enable_acting_master=False,
            compressed=False,
            body_crc32=crc32(body) & _CRC_MASK,
        )
        return self._signed(RequestCode.REGISTER_BROKER, header.encode(), body)

    def _signed(self, code: RequestCode, ext: dict[str, str], body: bytes = b"") -> Command:
        credentials = self._settings.now.credentials
        return Command(code, signed_fields(ext, body, credentials) if credentials else ext, body)

    def _tables(self, parts: list[list[TopicConfig]]) -> list[MappedTopicTable]:
        """The tables of consecutive requests; the last has the version of the whole table."""
        tables = []
        for behind, part in zip(reversed(range(len(parts))), parts, strict=True):
            table = self._topics.registration(self._permission, part)
            version = table.data_version
            timestamp = max(version.timestamp, self._permission_ms) - behind
            tables.append(replace(table, data_version=replace(version, timestamp=timestamp)))
        return tables


def _parts(topics: Iterable[TopicConfig], size: int) -> Iterator[list[TopicConfig]]:
    """`topics` in parts of at least two topics: a single one would be treated as an addition."""
    rest = iter(topics)
    part = list(islice(rest, size))
    while len(following := list(islice(rest, size))) > 1:
        yield part
        part = following
    yield part + following
