"""A program that stores numbered messages with sync flush and prints which are safe, until it is killed.

python -m tests.store.writer_program FOLDER FIRST_NUMBER        prints "NUMBER QUEUE_OFFSET" for each message that is safe
"""

import sys
from pathlib import Path
from queue import SimpleQueue

from pocketmq.model.names import parse_topic
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import FlushMode, StoreSettings
from pocketmq.store.worker import Post

HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
TOPIC = parse_topic("Numbers")
TURN = 4


def settings_in(folder: Path) -> StoreSettings:
    return StoreSettings(
        folder=folder,
        flush=FlushMode.SYNC,
        log_file_bytes=16 * 1024,
        queue_file_entries=50,
        index_slots=50,
        index_entries=200,
        queue_thorough_ms=5,
        checkpoint_interval_ms=5,
    )


def open_store(folder: Path, post: Post) -> MessageStore:
    return MessageStore(settings_in(folder), store_host=HOST, post=post)


def main(folder: Path, number: int) -> None:
    posted: SimpleQueue[object] = SimpleQueue()
    store = open_store(folder, posted.put)
    store.open()
    while True:
        placed = []
        for _ in range(TURN):
            queue = store.queue(TOPIC, number % 2)
            offset, _ = store.stage(queue, b"%d" % number, b"KEYS\x01k%d\x02" % number, 0, 0, 0, HOST)
            placed.append((number, offset))
            number += 1
        store.end_turn()
        safe: list[bool] = []
        store.when_synced(store.end, safe.append)
        while not safe:
            callback = posted.get()
            assert callable(callback)
            callback()
        assert safe == [True]
        sys.stdout.write("".join(f"{number} {offset}\n" for number, offset in placed))
        sys.stdout.flush()
        store.tick()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
