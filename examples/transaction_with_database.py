"""A row in a database and a message about it: both or none, also when the program dies between the two.

Prints:
    Ann paid: stored and told
    Ben has no money: neither stored nor told
    Cid paid, and then the power failed: the broker asked, and the database knew
    messages that came: Ann, Cid
"""

import sqlite3
import tempfile
import threading
from contextlib import closing, suppress
from pathlib import Path

from pocketmq import Producer, PushConsumer, Server, StoredMessage, TransactionState

told: set[str] = set()
all_told = threading.Event()


class OutOfMoney(Exception):
    pass


def was_paid(database: Path, customer: str) -> bool:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute("SELECT 1 FROM payments WHERE customer = ?", [customer]).fetchone() is not None


def pay(producer: Producer, database: Path, customer: str, *, power_fails: bool = False) -> None:
    with producer.transaction("payments") as transaction:
        transaction.send(customer.encode(), keys=customer)  # stored, but nobody sees it yet
        if customer == "Ben":
            raise OutOfMoney  # the block ends with an error: the message is dropped
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("INSERT INTO payments VALUES (?)", [customer])
        if power_fails:
            transaction.leave_open()  # as if the program had died here: the broker will ask `check`


with tempfile.TemporaryDirectory() as folder:
    database = Path(folder, "shop.db")
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE TABLE payments (customer TEXT PRIMARY KEY)")

    def check(message: StoredMessage) -> TransactionState:
        """Did it happen? Asked by the broker, of any member of the group, also after a restart."""
        return TransactionState.COMMIT if was_paid(database, message.keys[0]) else TransactionState.ROLLBACK

    soon = {"transactionTimeOut": 500, "transactionCheckInterval": 500}
    with Server(settings=soon) as server, Producer(server.name_server, group="shop", check=check) as producer:
        pay(producer, database, "Ann")
        print("Ann paid: stored and told")
        with suppress(OutOfMoney):
            pay(producer, database, "Ben")
        print("Ben has no money: neither stored nor told")
        pay(producer, database, "Cid", power_fails=True)

        consumer = PushConsumer(server.name_server, group="ledger", start_at="first")

        @consumer.on("payments")
        def hear(message: StoredMessage) -> None:
            told.add(message.body.decode())
            if len(told) == 2:
                all_told.set()

        with consumer:
            all_told.wait(30)
        print("Cid paid, and then the power failed: the broker asked, and the database knew")

print("messages that came:", ", ".join(sorted(told)))
