"""The official Python client of RocketMQ 5 sends to PocketMQ and receives from it.

It needs `pip install 'pocketmq[grpc]' rocketmq-python-client`. Prints:

    5,99 € for tea
"""

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

import pocketmq

with pocketmq.Server(grpc_port=0) as server:  # or `pocketmq serve`, and the address 127.0.0.1:8081
    with pocketmq.Admin(server.name_server) as admin:
        admin.topics.create("payments")  # clients of RocketMQ 5 send to existing topics only
    configuration = ClientConfiguration(server.grpc_address, Credentials())

    producer = Producer(configuration, ["payments"])
    producer.startup()
    consumer = SimpleConsumer(configuration, "accounting", {"payments": FilterExpression("tea")})
    consumer.startup()
    message = Message()
    message.topic, message.tag, message.body = "payments", "tea", "5,99 € for tea".encode()
    producer.send(message)
    for received in consumer.receive(32, 15):
        print(received.body.decode())
        consumer.ack(received)
    consumer.shutdown()
    producer.shutdown()
