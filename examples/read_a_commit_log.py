"""Decode a message from the bytes that a RocketMQ broker stores in its commit log and sends to consumers.

Prints:
    TopicTest queue 3 offset 42
    TagA ['k1'] b'hello'
    0A00000200002A9F000000000012D687 from 10.0.0.1:5678
"""

from pocketmq.protocol.record import decode_records

LOG = bytes.fromhex(
    "0000007bdaa320a73610a6860000000300000007000000000000002a000000000012d687000000000000018bcfe5687b"
    "0a0000010000162e0000018bcfe569c80a00000200002a9f0000000000000000000000000000000568656c6c6f"
    "09546f706963546573740012544147530154616741024b455953016b3102"
)

for message in decode_records(LOG):
    print(message.topic, "queue", message.queue_id, "offset", message.queue_offset)
    print(message.tags, message.keys, message.body)
    print(message.message_id, "from", message.born_host)
