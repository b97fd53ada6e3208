"""Poll messages in your own loop. After a crash, messages that were not committed are delivered again.

Prints:
    read reading 0 to reading 5
    a crash before the commit: reading 3 comes again
    from the beginning once more: reading 0
"""

from pocketmq import LitePullConsumer, Producer, Server

with Server() as server, Producer(server.name_server) as producer:
    for number in range(6):
        producer.send("readings", b"reading %d" % number, sharding_key="one queue")

    def new_consumer() -> LitePullConsumer:
        return LitePullConsumer(server.name_server, group="charts", start_at="first", auto_commit=False, pull_batch=3)

    with new_consumer() as consumer:
        consumer.subscribe("readings")
        first = consumer.poll(30)
        consumer.commit()
        second = consumer.poll(30)  # polled, but not committed
    print("read", first[0].body.decode(), "to", second[-1].body.decode())

    with new_consumer() as consumer:
        consumer.subscribe("readings")
        again = consumer.poll(30)
        print("a crash before the commit:", again[0].body.decode(), "comes again")

        [queue] = [queue for queue in consumer.queues() if queue.queue_id == again[0].queue_id]
        consumer.seek_to_begin(queue)
        for message in consumer:
            print("from the beginning once more:", message.body.decode())
            break
