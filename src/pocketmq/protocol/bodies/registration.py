"""The registration of a broker with a name server: its topics, as JSON or packed.

Packed, after decompressing a zlib stream:

    | size 4 | data version, JSON … |
    | topics 4 | size 4 | `name read write perm filterType {attributes}` … | repeated
    | size 4 | filter servers, a JSON array … |
    | mappings 4 | size 4 | queue mapping, JSON … | repeated         from release 5.0 on

The packed form contains neither the order flag nor the system flag of a topic.
"""

import struct
import zlib

import msgspec

from pocketmq.codes import VERSION, Version
from pocketmq.errors import BodyError, UsageError
from pocketmq.protocol.bodies.topics import DataVersion, MappedTopicTable, QueueMappingInfo, TopicConfig, TopicTable
from pocketmq.protocol.java_json import Body, read_body, write_json

INFLATED_BYTES = 64 * 1024 * 1024
"""The largest registration after decompression."""

_SIZE = struct.Struct(">i")


class RegisterBrokerBody(Body, frozen=True):
    """The topics of a broker: a single new topic, or the whole table."""

    topics: MappedTopicTable = msgspec.field(default=MappedTopicTable(), name="topicConfigSerializeWrapper")
    filter_server_list: tuple[str, ...] = ()


def read_registration(
    data: bytes, *, compressed: bool = False, version: int = VERSION, inflated_bytes: int = INFLATED_BYTES
) -> RegisterBrokerBody:
    """Decode the registration of a broker of this version. A missing body has no topics."""
    if not data:
        return RegisterBrokerBody()
    if version < Version.V3_0_11:
        table = TopicTable.decode(data)
        return RegisterBrokerBody(MappedTopicTable(table.data_version, table.topic_config_table))
    if not compressed:
        return RegisterBrokerBody.decode(data)
    pieces = _Pieces(_inflate(data, inflated_bytes))
    data_version = DataVersion.decode(pieces.take())
    topics = [_topic_of(pieces.take()) for _ in range(pieces.number())]
    filter_servers = read_body(tuple[str, ...], pieces.take())
    count = pieces.number() if version >= Version.V5_0_0 else 0
    mappings = [QueueMappingInfo.decode(pieces.take()) for _ in range(count)]
    return RegisterBrokerBody(
        MappedTopicTable(
            data_version,
            {topic.topic_name: topic for topic in topics},
            topic_queue_mapping_info_map={mapping.topic or "": mapping for mapping in mappings},
        ),
        filter_servers,
    )


def write_registration(body: RegisterBrokerBody, *, compressed: bool = False, version: int = VERSION) -> bytes:
    """Encode a registration of a broker of this version."""
    if not compressed:
        return body.encode()
    table = body.topics
    parts = [_sized(table.data_version.encode()), _SIZE.pack(len(table.topic_config_table))]
    parts += [_sized(_topic_text(topic)) for topic in table.topic_config_table.values()]
    parts.append(_sized(write_json(body.filter_server_list)))
    if version >= Version.V5_0_0:
        parts.append(_SIZE.pack(len(table.topic_queue_mapping_info_map)))
        parts += [_sized(mapping.encode()) for mapping in table.topic_queue_mapping_info_map.values()]
    return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)


class _Pieces:
    """Reads numbers and sized pieces one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def number(self) -> int:
        at = self._at
        if at + 4 > len(self._data):
            raise BodyError(f"packed RegisterBrokerBody is truncated at byte {len(self._data)}")
        number: int = _SIZE.unpack_from(self._data, at)[0]
        if not 0 <= number <= len(self._data) - at - 4:
            raise BodyError(f"packed RegisterBrokerBody: {number} at byte {at} cannot be a size or count")
        self._at = at + 4
        return number

    def take(self) -> bytes:
        size = self.number()
        self._at += size
        return self._data[self._at - size : self._at]


def _inflate(data: bytes, limit: int) -> bytes:
    inflating = zlib.decompressobj()
    try:
        inflated = inflating.decompress(data, limit)
        if not inflating.eof and not inflating.unconsumed_tail:
            raise BodyError("packed RegisterBrokerBody is not a complete zlib stream")
        if not inflating.eof and inflating.decompress(inflating.unconsumed_tail, 1):
            raise BodyError(f"packed RegisterBrokerBody exceeds the limit of {limit} bytes after inflating")
    except zlib.error as error:
        raise BodyError(f"packed RegisterBrokerBody: {error}") from None
    return inflated


def _sized(piece: bytes) -> bytes:
    return _SIZE.pack(len(piece)) + piece


def _topic_text(topic: TopicConfig) -> bytes:
    if " " in topic.topic_name:
        raise UsageError(f"topic {topic.topic_name!r} has a blank in its name and cannot be packed")
    numbers = f"{topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
    return f"{topic.topic_name} {numbers} {topic.topic_filter_type} ".encode() + write_json(topic.attributes)


def _topic_of(text: bytes) -> TopicConfig:
    try:
        words = text.decode().split(" ", 5)
        name, read, write, perm, filter_type = words[:5]
        attributes = read_body(dict[str, str], words[5].encode()) if words[5:] and words[5] else {}
        plain = {
            "topicName": name,
            "readQueueNums": read,
            "writeQueueNums": write,
            "perm": perm,
            "topicFilterType": filter_type,
            "attributes": attributes,
        }
        return msgspec.convert(plain, TopicConfig, strict=False)
    except ValueError as error:
        raise BodyError(f"packed topic {text[:200]!r}: {error}") from None
