"""Run a name server and a broker inside a program: query a route, send a message, and read it.

Prints:
    the name server knows broker-a
    sent to offset 0
    read b'hello'
"""

import asyncio

import pocketmq
from pocketmq.codes import PullFlag, RequestCode
from pocketmq.model.names import AUTO_CREATE_TOPIC
from pocketmq.net.address import Address
from pocketmq.net.pool import Pool
from pocketmq.protocol.api.administration import GetRoute
from pocketmq.protocol.api.messages import PullMessage, SendMessageV2, SendReply
from pocketmq.protocol.bodies.topics import TopicRouteData
from pocketmq.protocol.command import Command
from pocketmq.protocol.record import decode_records


async def main() -> None:
    async with pocketmq.Server() as server, Pool() as pool:
        name_server = await pool.peer(Address.parse(server.name_server))
        ask = GetRoute(AUTO_CREATE_TOPIC)
        answer = await name_server.call(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, ask.encode()))
        [found] = TopicRouteData.decode(answer.body).broker_datas
        print("the name server knows", found.broker_name)

        broker = await pool.peer(Address.parse(found.broker_addrs[0]))
        send = SendMessageV2("producers", "Greetings", AUTO_CREATE_TOPIC, 4, 0, 0, 0, 0)
        answer = await broker.call(Command(RequestCode.SEND_MESSAGE_V2, send.encode(), b"hello"))
        print("sent to offset", SendReply.decode(answer.ext).queue_offset)

        pull = PullMessage("consumers", "Greetings", 0, 0, 32, PullFlag.SUBSCRIPTION, 0, 0, 0, "*", "TAG")
        answer = await broker.call(Command(RequestCode.PULL_MESSAGE, pull.encode()))
        for message in decode_records(answer.body):
            print("read", message.body)


asyncio.run(main())
