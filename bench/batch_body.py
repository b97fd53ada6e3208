"""Packing many messages into one request and taking them out again, beside a loop that does it field by field."""

import struct

from bench.method import Candidate, Subject
from bench.samples import COUNT, SAMPLES
from pocketmq.protocol.batch import BatchItem, decode_batch, encode_batch

ITEMS: list[BatchItem] = [(0, sample.body, sample.properties.encode()) for sample in SAMPLES]
BODY = encode_batch(ITEMS)


def with_struct_packing() -> bytes:
    parts: list[bytes] = []
    for flag, body, properties in ITEMS:
        for number in (22 + len(body) + len(properties), 0, 0, flag, len(body)):
            parts.append(struct.pack(">i", number))  # noqa: PERF401
        parts += [body, struct.pack(">h", len(properties)), properties]
    return b"".join(parts)


def with_struct_unpacking() -> list[BatchItem]:
    items: list[BatchItem] = []
    at = 0
    while at < len(BODY):
        _, _, _, flag, body_size = [struct.unpack_from(">i", BODY, at + 4 * n)[0] for n in range(5)]
        properties_at = at + 20 + body_size + 2
        (properties_size,) = struct.unpack_from(">h", BODY, properties_at - 2)
        end = properties_at + properties_size
        if end > len(BODY):
            raise ValueError("cut off")
        items.append((flag, BODY[at + 20 : properties_at - 2], BODY[properties_at:end]))
        at = end
    return items


def subjects() -> list[Subject]:
    assert with_struct_packing() == BODY
    assert with_struct_unpacking() == decode_batch(BODY) == ITEMS
    encoding = [
        Candidate("encode_batch", lambda: encode_batch(ITEMS), ours=True),
        Candidate("struct, field by field", with_struct_packing),
    ]
    decoding = [
        Candidate("decode_batch", lambda: decode_batch(BODY), ours=True),
        Candidate("struct, field by field", with_struct_unpacking),
    ]
    return [
        Subject("batch encode", COUNT, encoding, aim_us=0.5),
        Subject("batch decode", COUNT, decoding, aim_us=0.6),
    ]
