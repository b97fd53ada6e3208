"""The C++ client of RocketMQ, through its Python binding: it runs a command, and prints what happens as lines of JSON.

guest.py NAMESRV send TOPIC
guest.py NAMESRV consume TOPIC GROUP FILTER MODE    until standard input ends; MODE: plain, orderly, broadcast or retry
"""

import json
import os
import sys
from typing import Any

from rocketmq.client import Message, MessageModel, Producer, PushConsumer


def say(what: str, value: object) -> None:
    print(json.dumps({what: value}), flush=True)


def text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else value or ""


def send(name_server: str, topic: str) -> None:
    producer = Producer("PG_guest", timeout=20_000)
    producer.set_namesrv_addr(name_server)
    producer.start()

    def message(body: str) -> Any:
        made = Message(topic)
        made.set_body(body)
        return made

    def tell(sent: Any) -> None:
        say("sent", {"status": int(sent.status), "id": sent.msg_id, "offset": sent.offset})

    tell(producer.send_sync(message("plain")))
    rich = message("rich")
    rich.set_tags("TagA")
    rich.set_keys("k1 k2")
    rich.set_property("colour", "red")
    tell(producer.send_sync(rich))
    delayed = message("delayed")
    delayed.set_delay_time_level(1)
    tell(producer.send_sync(delayed))
    for number in range(5):
        tell(producer.send_orderly(message(f"ordered{number}"), 7))
    producer.send_batch([message(f"batch{number}") for number in range(3)])
    tell(producer.send_sync(message("z" * 8192)))
    producer.send_oneway(message("one-way"))
    producer.shutdown()
    say("done", True)


def consume(name_server: str, topic: str, group: str, expression: str, mode: str) -> None:
    model = MessageModel.BROADCASTING if mode == "broadcast" else MessageModel.CLUSTERING
    consumer = PushConsumer(group, orderly=mode == "orderly", message_model=model)
    consumer.set_namesrv_addr(name_server)
    consumer.set_instance_name(str(os.getpid()))
    consumer.set_thread_count(1)

    def listen(message: Any) -> None:
        tries = message.reconsume_times
        say(
            "got",
            {
                "body": text(message.body),
                "tags": text(message.tags),
                "keys": text(message.keys),
                "colour": text(message.get_property("colour")),
                "id": message.id,
                "queue": message.queue_id,
                "offset": message.queue_offset,
                "tries": tries,
            },
        )
        if mode == "retry" and tries == 0:
            raise ValueError("not now")

    consumer.subscribe(topic, listen, expression)
    consumer.start()
    say("running", True)
    sys.stdin.read()
    os._exit(0)  # its own stop waits for threads that do not end


if __name__ == "__main__":
    if sys.argv[2] == "send":
        send(sys.argv[1], sys.argv[3])
    else:
        consume(sys.argv[1], *sys.argv[3:])
