"""Encoding and decoding stored records, beside a plain loop that packs and unpacks field by field."""

import struct
from typing import Any
from zlib import crc32

from bench.method import Candidate, Subject
from bench.samples import BORN_HOST, COUNT, NOW_MS, SAMPLES, STORE_HOST, TOPIC, record
from pocketmq.model.properties import parse_properties
from pocketmq.protocol.record import MAGIC_V1, decode_records, encode_record

TOPIC_BYTES = TOPIC.encode()
STORE_MS = NOW_MS + 1
INPUTS = [(s.number % 4, s.number, s.number * 300, s.body, s.properties.encode()) for s in SAMPLES]
"""Queue id, queue offset, log offset, body, properties."""
PULLED = b"".join(record(sample) for sample in SAMPLES)

FIELDS = (">i", ">I", ">i", ">i", ">i", ">q", ">q", ">i", ">q", "8s", ">q", "8s", ">i", ">q")
"""Size, magic, CRC, queue id, flag, both offsets, sysFlag, born and store time and host, reconsume times, prepared offset."""


def with_encode_record() -> None:
    for queue_id, queue_offset, log_offset, body, properties in INPUTS:
        encode_record(
            TOPIC_BYTES,
            queue_id,
            queue_offset,
            log_offset,
            body,
            properties,
            0,
            0,
            NOW_MS,
            BORN_HOST,
            STORE_MS,
            STORE_HOST,
        )


def with_decode_records() -> None:
    decode_records(PULLED)


def with_decode_and_tags() -> None:
    for message in decode_records(PULLED):
        _ = message.tags


def packed_by_field(queue_id: int, queue_offset: int, log_offset: int, body: bytes, properties: bytes) -> bytes:
    values: tuple[Any, ...] = (
        91 + len(body) + len(TOPIC_BYTES) + len(properties),
        MAGIC_V1,
        crc32(body) & 0x7FFFFFFF,
        queue_id,
        0,
        queue_offset,
        log_offset,
        0,
        NOW_MS,
        BORN_HOST,
        STORE_MS,
        STORE_HOST,
        0,
        0,
    )
    parts = [struct.pack(field, value) for field, value in zip(FIELDS, values, strict=True)]
    parts += [struct.pack(">i", len(body)), body, struct.pack(">b", len(TOPIC_BYTES)), TOPIC_BYTES]
    parts += [struct.pack(">h", len(properties)), properties]
    return b"".join(parts)


def with_struct_packing() -> None:
    for one in INPUTS:
        packed_by_field(*one)


def unpacked_by_field(buffer: bytes, at: int) -> tuple[list[Any], int]:
    values = []
    for field in FIELDS:
        values.append(struct.unpack_from(field, buffer, at)[0])
        at += struct.calcsize(field)
    for width in (">i", ">b", ">h"):
        (size,) = struct.unpack_from(width, buffer, at)
        at += struct.calcsize(width)
        values.append(buffer[at : at + size])
        at += size
    if crc32(values[14]) & 0x7FFFFFFF != values[2]:
        raise ValueError("wrong checksum")
    values[15] = values[15].decode()
    return values, at


def with_struct_unpacking() -> None:
    at = 0
    while at < len(PULLED):
        _, at = unpacked_by_field(PULLED, at)


def with_struct_unpacking_and_tags() -> None:
    at = 0
    while at < len(PULLED):
        values, at = unpacked_by_field(PULLED, at)
        parse_properties(values[16].decode()).get("TAGS")


def _check() -> None:
    """Everybody wrote and read the same."""
    assert b"".join(packed_by_field(*one) for one in INPUTS) == PULLED
    message = decode_records(PULLED)[0]
    values, end = unpacked_by_field(PULLED, 0)
    assert (message.topic, message.body, message.raw_properties) == (values[15], values[14], values[16])
    assert message.size == end


def subjects() -> list[Subject]:
    _check()
    encoding = [
        Candidate("encode_record", with_encode_record, ours=True),
        Candidate("struct, field by field", with_struct_packing),
    ]
    decoding = [
        Candidate("decode_records", with_decode_records, ours=True),
        Candidate("struct, field by field", with_struct_unpacking),
    ]
    reading = [
        Candidate("decode_records, then tags", with_decode_and_tags, ours=True),
        Candidate("struct, then tags", with_struct_unpacking_and_tags),
    ]
    return [
        Subject("record encode", COUNT, encoding, aim_us=1.2),
        Subject("record decode, lazy", COUNT, decoding, aim_us=1.2),
        Subject("record decode and tags", COUNT, reading),
    ]
