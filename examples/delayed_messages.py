"""Send messages that are delivered later: after a delay level or any time. Recall one before it is delivered.

Prints:
    at once: first
    not before its time: second, after a level of 1 s
    not before its time: third, after 1500 ms
    the fourth was recalled
"""

import threading
import time

from pocketmq import Producer, PushConsumer, Server, StoredMessage

lines: list[str] = []
done = threading.Event()

with (
    Server(settings={"recallMessageEnable": True}) as server,
    Producer(server.name_server, group="reminders") as producer,
):
    start = time.monotonic()
    producer.send("reminders", b"first")
    producer.send("reminders", b"second, after a level of 1 s", delay_level=1)
    producer.send("reminders", b"third, after 1500 ms", delay_ms=1500)
    fourth = producer.send("reminders", b"fourth", deliver_at_ms=int((time.time() + 3600) * 1000))
    assert fourth.recall_handle is not None
    producer.recall("reminders", fourth.recall_handle)

    consumer = PushConsumer(server.name_server, group="readers", start_at="first")

    @consumer.on("reminders")
    def read(message: StoredMessage) -> None:
        text = message.body.decode()
        is_early = text != "first" and time.monotonic() - start < 0.5
        lines.append(f"{'too early' if is_early else 'at once' if text == 'first' else 'not before its time'}: {text}")
        if len(lines) == 3:
            done.set()

    with consumer:
        done.wait(30)

for line in sorted(lines, key=lambda line: ["first", "second", "third"].index(line.split(": ")[1].split(",")[0])):
    print(line)
print("the fourth was recalled")
