"""What a broker says of itself to a name server: who and where it is, and its topics.

    first of all, and now and then ──► all topics            a name server that knows nothing of us refuses a single one
    one topic changed ───────────────► that one, in addition to what was said before

A name server takes topics over only when the version differs from the one it knows. So a version must stand for everything:
a change of the broker's permission, which is a change of all its topics, makes another one, and parts of a large table, which
are told one after the other, have one each.
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final
from zlib import crc32

from msgspec.structs import replace

from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.topics import TopicTable
from pocketmq.clock import Clock
from pocketmq.codes import RequestCode
from pocketmq.net.address import Address
from pocketmq.protocol.api.routes import RegisterBroker, UnregisterBroker
from pocketmq.protocol.bodies.key_values import KVTable
from pocketmq.protocol.bodies.registration import RegisterBrokerBody, write_registration
from pocketmq.protocol.bodies.topics import MappedTopicTable, TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, write_fields
from pocketmq.protocol.java_json import read_optional_body
from pocketmq.protocol.signing import signed_fields

MAX_TOPICS_TOLD: Final = 20_000
"""Topics in one request, which has to fit into a frame; a larger table is told in parts."""

_CRC_MASK: Final = 0x7FFF_FFFF


class Introduction:
    """Makes the requests, and takes the answers. `max_told` topics go into one request."""

    def __init__(
        self, settings: SettingsInUse, topics: TopicTable, clock: Clock, *, max_told: int = MAX_TOPICS_TOLD
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._clock = clock
        self._max_told = max_told
        self._permission = settings.now.permission
        self._permission_ms = 0

    def note_permission(self) -> bool:
        """Whether the broker allows something else than it did the last time somebody asked."""
        permission = self._settings.now.permission
        if permission == self._permission:
            return False
        self._permission, self._permission_ms = permission, self._clock.now_ms()
        return True

    def register(self, own: Address, changed: TopicConfig | None = None) -> list[Command]:
        """The requests that tell all topics, or the one that changed; `own` is where clients find us."""
        tables = [self._table([changed])] if changed else self._whole_table()
        return [self._register(own, table) for table in tables]

    def unregister(self, own: Address) -> Command:
        settings = self._settings.now
        header = UnregisterBroker(settings.broker_name, str(own), settings.cluster, settings.broker_id)
        return self._signed(RequestCode.UNREGISTER_BROKER, header)

    def take_answer(self, answer: Command) -> None:
        """A name server took what it was told; it may add which topics are ordered."""
        if orders := read_optional_body(KVTable, answer.body):
            self._topics.mark_ordered(orders.table, self._clock.now_ms())

    def _register(self, own: Address, table: MappedTopicTable) -> Command:
        settings = self._settings.now
        body = write_registration(RegisterBrokerBody(table))
        header = RegisterBroker(
            broker_name=settings.broker_name,
            broker_addr=str(own),
            cluster_name=settings.cluster,
            ha_server_addr=str(Address(own.host, own.port + 1)),
            broker_id=settings.broker_id,
            enable_acting_master=False,
            compressed=False,
            body_crc32=crc32(body) & _CRC_MASK,
        )
        return self._signed(RequestCode.REGISTER_BROKER, header, body)

    def _signed(self, code: RequestCode, header: Fields, body: bytes = b"") -> Command:
        ext, credentials = write_fields(header), self._settings.now.credentials
        return Command(code, signed_fields(ext, body, credentials) if credentials else ext, body)

    def _table(self, topics: list[TopicConfig] | None = None) -> MappedTopicTable:
        table = self._topics.registration(self._permission, topics)
        version = table.data_version
        return replace(table, data_version=replace(version, timestamp=max(version.timestamp, self._permission_ms)))

    def _whole_table(self) -> list[MappedTopicTable]:
        whole = self._table()
        version = whole.data_version
        parts = list(_parts(whole.topic_config_table.values(), self._max_told))
        return [
            replace(
                whole,
                data_version=replace(version, timestamp=version.timestamp - behind),
                topic_config_table={row.topic_name: row for row in part},
            )
            for behind, part in zip(reversed(range(len(parts))), parts, strict=True)
        ]


def _parts(topics: Iterable[TopicConfig], size: int) -> Iterator[list[TopicConfig]]:
    """`topics` in parts, none of which is a single topic: that would be taken for an addition."""
    rest = iter(topics)
    part = list(islice(rest, size))
    while len(following := list(islice(rest, size))) > 1:
        yield part
        part = following
    yield part + following
