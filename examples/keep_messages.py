"""Use the store without a broker: write two messages, read them, find one by key, and open the store again.

Prints:
    stored at offsets 0 and 1
    read b'first' TagA
    read b'second' TagB
    found by key: b'second'
    after a restart the queue ends at 2
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from pocketmq.model.message_id import Host
from pocketmq.model.names import parse_topic
from pocketmq.protocol.record import decode_records
from pocketmq.store.message_store import MessageStore
from pocketmq.store.settings import MIB, StoreSettings

HERE = Host.parse("127.0.0.1:10911").packed()
ORDERS = parse_topic("Orders")


def store_in(folder: str) -> MessageStore:
    settings = StoreSettings(folder=Path(folder), log_file_bytes=MIB)
    return MessageStore(settings, store_host=HERE, post=lambda callback: None)


with TemporaryDirectory() as folder:
    with store_in(folder) as store:
        queue = store.queue(ORDERS, 0)
        first, _ = store.stage(queue, b"first", b"TAGS\x01TagA\x02", 0, 0, 1_700_000_000_000, HERE)
        second, _ = store.stage(queue, b"second", b"TAGS\x01TagB\x02KEYS\x01k2\x02", 0, 0, 1_700_000_000_000, HERE)
        store.end_turn()
        print("stored at offsets", first, "and", second)

        for message in decode_records(store.read(ORDERS, 0, offset=0, max_count=32).body()):
            print("read", message.body, message.tags)
        print("found by key:", store.find_by_key(ORDERS, "k2", limit=1)[0].body)

    with store_in(folder) as store:
        print("after a restart the queue ends at", store.max_offset(ORDERS, 0))
