"""All ways to send: wait for the result, get a future, send batches, or send one-way without a result.

Prints:
    one message is SEND_OK at offset 0
    ten futures are SEND_OK
    one hundred messages in batches: 100 stored
    one-way: no result
    the topic has 112 messages
"""

from pocketmq import Admin, Message, Producer, Server

with Server() as server, Admin(server.name_server) as admin, Producer(server.name_server, group="shop") as producer:
    admin.topics.create("orders", queues=1)

    result = producer.send("orders", b"a coffee", keys="42", tags="drinks", properties={"table": "7"})
    print("one message is", result.status, "at offset", result.queue_offset)

    futures = [producer.submit("orders", b"order %d" % number) for number in range(10)]
    statuses = {future.result().status for future in futures}
    print("ten futures are", *statuses)

    results = producer.send_many(Message("orders", b"order %d" % number) for number in range(100))
    print("one hundred messages in batches:", len(results), "stored")

    producer.send_one_way("orders", b"a wink")
    print("one-way: no result")

    producer.send("orders", b"on the same line, so after all of them")
    print("the topic has", admin.topics.describe("orders").messages - 1, "messages")
