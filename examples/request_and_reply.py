"""Request and reply over a topic: the producer waits for the reply of a consumer.

Prints:
    2 + 3 = 5
    6 * 7 = 42
"""

import operator

from pocketmq import Admin, Producer, PushConsumer, Server, StoredMessage

OPERATORS = {"+": operator.add, "*": operator.mul}

with (
    Server() as server,
    Admin(server.name_server) as admin,
    Producer(server.name_server, group="askers") as asker,
    Producer(server.name_server, group="answerers") as answerer,
):
    admin.topics.create("sums")
    consumer = PushConsumer(server.name_server, group="answerers")

    @consumer.on("sums")
    def answer(question: StoredMessage) -> None:
        left, sign, right = question.body.decode().split()
        answerer.reply(question, str(OPERATORS[sign](int(left), int(right))).encode())

    with consumer:
        for question in ("2 + 3", "6 * 7"):
            reply = asker.request("sums", question.encode(), timeout_s=30)
            print(question, "=", reply.body.decode())
