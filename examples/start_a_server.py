"""Run a name server and a broker inside a program, on free ports and in a temporary folder, until the block ends.

Prints:
    any RocketMQ client finds it at 127.0.0.1
"""

import pocketmq

with pocketmq.Server() as server:
    host, _, port = server.name_server.rpartition(":")
    print("any RocketMQ client finds it at", host)
