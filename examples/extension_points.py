"""Replace parts of a consumer: its filter, its offset store, its requests, and when it pulls.

Prints:
    handled: order 1, order 3
    offset in the database: 3
    requests: GET_ROUTEINFO_BY_TOPIC, PULL_MESSAGE
    pulled by the scheduler: order 1, order 2, order 3
"""

import sqlite3
import threading
from collections.abc import Mapping

from pocketmq import Hooks, MessageQueue, Producer, PullConsumer, PushConsumer, Server, StoredMessage
from pocketmq.client import Command, FilterEvent, OffsetStore, RpcHook
from pocketmq.codes import RequestCode


class WithoutTests(Hooks):
    """Takes messages away before a listener gets them; they count as done."""

    def filter_messages(self, event: FilterEvent) -> None:
        event.messages = [message for message in event.messages if message.properties.get("kind") != "test"]


class Database(OffsetStore):
    """Keeps offsets in SQLite, in a transaction with what the program stores, if it likes."""

    def __init__(self) -> None:
        self.table = sqlite3.connect(":memory:", check_same_thread=False)
        self.table.execute("CREATE TABLE offsets (queue TEXT PRIMARY KEY, offset INTEGER)")

    async def load(self, queue: MessageQueue) -> int | None:
        row = self.table.execute("SELECT offset FROM offsets WHERE queue = ?", (str(queue),)).fetchone()
        return row[0] if row else None

    async def save(self, offsets: Mapping[MessageQueue, int], *, wait: bool) -> None:
        rows = [(str(queue), offset) for queue, offset in offsets.items()]
        self.table.executemany("INSERT OR REPLACE INTO offsets VALUES (?, ?)", rows)


class Requests(RpcHook):
    """Sees every request to a name server or a broker."""

    def __init__(self) -> None:
        self.codes: set[int] = set()

    def before_request(self, address: str, request: Command) -> None:
        self.codes.add(request.code)


with Server() as server, Producer(server.name_server) as producer:
    for number, kind in ((1, "real"), (2, "test"), (3, "real")):
        producer.send("orders", b"order %d" % number, properties={"kind": kind}, sharding_key="one queue")

    handled: list[str] = []
    done = threading.Event()
    database, requests = Database(), Requests()
    consumer = PushConsumer(
        server.name_server,
        group="billing",
        start_at="first",
        ordered=True,
        hooks=[WithoutTests()],
        offset_store=database,
        rpc_hook=requests,
    )

    @consumer.on("orders")
    def bill(message: StoredMessage) -> None:
        handled.append(message.body.decode())
        if message.body == b"order 3":
            done.set()

    with consumer:
        done.wait(30)
    print("handled:", ", ".join(handled))
    print("offset in the database:", database.table.execute("SELECT max(offset) FROM offsets").fetchone()[0])
    shown = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.PULL_MESSAGE}
    print("requests:", ", ".join(sorted(RequestCode(code).name for code in requests.codes & shown)))

    pulled: list[str] = []
    all_pulled = threading.Event()
    with PullConsumer(server.name_server, group="audit") as puller:

        def audit(queue: MessageQueue) -> float | None:
            """Called for each queue of this member; returns after how many seconds to call it again."""
            result = puller.pull(queue, puller.committed(queue) or 0)
            pulled.extend(message.body.decode() for message in result.messages)
            puller.commit({queue: result.next_offset})
            if len(pulled) == 3:
                all_pulled.set()
            return 0.0 if result.messages else 5.0

        puller.schedule("orders", audit)
        all_pulled.wait(30)
    print("pulled by the scheduler:", ", ".join(pulled))
