"""Each member of a broadcasting group gets every message, and saves its own offsets.

Prints:
    screen 1: doors open, last call
    screen 2: doors open, last call
"""

import tempfile
import threading
from collections import defaultdict

from pocketmq import Admin, Producer, PushConsumer, Server, StoredMessage

shown: dict[str, list[str]] = defaultdict(list)
done = threading.Event()


def new_screen(name_server: str, name: str, folder: str) -> PushConsumer:
    screen = PushConsumer(name_server, group="screens", broadcast=True, instance_name=name, local_offsets=folder)

    @screen.on("news")
    def show(message: StoredMessage) -> None:
        shown[name].append(message.body.decode())
        if sum(map(len, shown.values())) == 4:
            done.set()

    return screen


with (
    tempfile.TemporaryDirectory() as folder,
    Server() as server,
    Admin(server.name_server) as admin,
    Producer(server.name_server) as producer,
):
    admin.topics.create("news", queues=1)
    with new_screen(server.name_server, "screen 1", folder), new_screen(server.name_server, "screen 2", folder):
        for text in (b"doors open", b"last call"):
            producer.send("news", text)
        done.wait(30)

for screen in sorted(shown):
    print(f"{screen}:", ", ".join(shown[screen]))
