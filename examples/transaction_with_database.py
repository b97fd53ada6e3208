"""Insert a row in a database and send a message: both happen or neither, even if the program crashes in between.

Prints:
    Ann paid: the row and the message are committed
    Ben has no money: the message is rolled back
    Cid paid, then the program crashed: the broker called check, and the message is committed
    messages: Ann, Cid
"""

import sqlite3
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path

from pocketmq import Producer, PushConsumer, Server, StoredMessage, TransactionState

paid: set[str] = set()
all_paid = threading.Event()


class OutOfMoney(Exception):
    pass


def was_paid(database: Path, customer: str) -> bool:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT 1 FROM payments WHERE customer = ?", [customer]).fetchone() is not None


def pay(producer: Producer, database: Path, customer: str, *, power_fails: bool = False) -> None:
    with producer.transaction("payments") as transaction:
        transaction.send(customer.encode(), keys=customer)  # stored, but not delivered yet
        if customer == "Ben":
            raise OutOfMoney  # the block ends with an error: the message is dropped
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("INSERT INTO payments VALUES (?)", [customer])
        if power_fails:
            transaction.leave_open()  # as if the program had crashed here: the broker will call `check`


with tempfile.TemporaryDirectory() as folder:
    database = Path(folder, "shop.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE payments (customer TEXT PRIMARY KEY)")

    def check(message: StoredMessage) -> TransactionState:
        """Was the payment stored? The broker calls this in any member of the group, also after a restart."""
        return TransactionState.COMMIT if was_paid(database, message.keys[0]) else TransactionState.ROLLBACK

    soon = {"transactionTimeOut": 500, "transactionCheckInterval": 500}
    with Server(settings=soon) as server, Producer(server.name_server, group="shop", check=check) as producer:
        pay(producer, database, "Ann")
        print("Ann paid: the row and the message are committed")
        with suppress(OutOfMoney):
            pay(producer, database, "Ben")
        print("Ben has no money: the message is rolled back")
        pay(producer, database, "Cid", power_fails=True)

        consumer = PushConsumer(server.name_server, group="ledger", start_at="first")

        @consumer.on("payments")
        def record(message: StoredMessage) -> None:
            paid.add(message.body.decode())
            if len(paid) == 2:
                all_paid.set()

        with consumer:
            all_paid.wait(30)
        print("Cid paid, then the program crashed: the broker called check, and the message is committed")

print("messages:", ", ".join(sorted(paid)))
