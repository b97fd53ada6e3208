"""What a broker says of itself to a name server: who and where it is, and its topics.

    first of all, and now and then ──► all topics            a name server that knows nothing of us refuses a single one
    a few of many topics changed ────► each of these, in addition to what was said before

A name server takes two topics or more for all that we have, so those that changed are told one by one. That is worth it while they
are few: the cost of telling all grows with the table, and is borne only when as good a part of it is new.

A name server takes topics over only when the version differs from the one it knows. So a version must stand for everything:
a change of the broker's permission, which is a change of all its topics, makes another one, and what is told one after the other,
parts of a large table or single topics, has one each.
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
from pocketmq.model.names import is_group_topic
from pocketmq.net.address import Address
from pocketmq.protocol.api.routes import RegisterBroker, RegisterBrokerReply, UnregisterBroker
from pocketmq.protocol.bodies.body import KVTable
from pocketmq.protocol.bodies.routes import RegisterBrokerBody, write_registration
from pocketmq.protocol.bodies.topics import MappedTopicTable, TopicConfig
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import Fields, read_fields, write_fields
from pocketmq.protocol.java_json import read_optional_body
from pocketmq.protocol.signing import signed_fields

MAX_TOPICS_TOLD: Final = 20_000
"""Topics in one request, which has to fit into a frame; a larger table is told in parts."""

SINGLE_COST: Final = 32
"""To tell one topic by itself costs as much as so many that are told with all the others."""

_CRC_MASK: Final = 0x7FFF_FFFF


class RegistrationData:
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

    def may_tell_singly(self, changed: int) -> bool:
        """Whether so many topics are better told one by one than with all the others."""
        return changed == 1 or changed * SINGLE_COST <= len(self._topics)

    def register(self, own: Address, changed: Iterable[TopicConfig] = ()) -> list[Command]:
        """The requests that tell all topics, or only those that changed; `own` is where clients find us."""
        parts = [[row] for row in changed] or list(_parts(_groups_last(self._topics), self._max_told))
        return [self._register(own, table) for table in self._tables(parts)]

    def unregister(self, own: Address) -> Command:
        settings = self._settings.now
        header = UnregisterBroker(settings.broker_name, str(own), settings.cluster, settings.broker_id)
        return self._signed(RequestCode.UNREGISTER_BROKER, header)

    def take_answer(self, answer: Command) -> int:
        """A name server took what it was told, but for so many topics; it may add which topics are ordered."""
        if orders := read_optional_body(KVTable, answer.body):
            self._topics.mark_ordered(orders.table, self._clock.now_ms())
        return read_fields(RegisterBrokerReply, answer.ext).topics_rejected or 0

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

    def _tables(self, parts: list[list[TopicConfig]]) -> list[MappedTopicTable]:
        """What is told one after the other; the last has the version of everything."""
        tables = []
        for behind, part in zip(reversed(range(len(parts))), parts, strict=True):
            table = self._topics.registration(self._permission, part)
            version = table.data_version
            timestamp = max(version.timestamp, self._permission_ms) - behind
            tables.append(replace(table, data_version=replace(version, timestamp=timestamp)))
        return tables


def _groups_last(topics: Iterable[TopicConfig]) -> list[TopicConfig]:
    """A name server that has no space for all of them takes the first: those for retries and dead letters shall be the last."""
    return sorted(topics, key=lambda row: is_group_topic(row.topic_name))


def _parts(topics: Iterable[TopicConfig], size: int) -> Iterator[list[TopicConfig]]:
    """`topics` in parts, none of which is a single topic: that would be taken for an addition."""
    rest = iter(topics)
    part = list(islice(rest, size))
    while len(following := list(islice(rest, size))) > 1:
        yield part
        part = following
    yield part + following
