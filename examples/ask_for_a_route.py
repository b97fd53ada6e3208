"""Encode a request, split its bytes as a network may, and decode it again.

Prints:
    GET_ROUTEINFO_BY_TOPIC {'topic': 'TopicTest'}
"""

from pocketmq.codes import RequestCode
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import FrameSplitter

request = Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "TopicTest"}, opaque=1)
wire = encode_command(request)

splitter = FrameSplitter()
for piece in (wire[:20], wire[20:]):
    for frame in splitter.feed(piece):
        arrived = decode_command(frame)
        print(RequestCode(arrived.code).name, arrived.ext)
