"""Receive messages that the broker leases for a time, and acknowledge each. What is not acknowledged returns.

Prints:
    paid 1: attempt 1
    paid 2: attempt 1
    paid 2: attempt 2
"""

from pocketmq import Producer, Server, SimpleConsumer

with Server() as server, Producer(server.name_server) as producer:
    for number in (1, 2):
        producer.send("orders", b"paid %d" % number, sharding_key="one queue")

    with SimpleConsumer(server.name_server, group="billing", start_at="first", auto_renew=True) as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            print(f"{message.body.decode()}: attempt {message.reconsume_times + 1}")
            if message.body == b"paid 2" and message.reconsume_times == 0:
                consumer.change_invisible(message, 0)  # not now: it returns at once
                continue
            consumer.ack(message)
            if message.body == b"paid 2":
                break
