"""A failed message is delivered again later. A dead letter is not; it has the reason, and can be replayed.

Prints:
    payment of Ann: the bank is closed
    payment of Ann: done, attempt 2
    payment of Ben: no such account
    1 dead letter: b'Ben' because: no such account
    payment of Bob: done, attempt 1
"""

import threading
import time

from pocketmq import Admin, DeadLetter, Message, Producer, PushConsumer, RetryLater, Server, StoredMessage
from pocketmq.client.admin.dead_letters import Letter

done = threading.Event()


def correct(letter: Letter, message: Message) -> Message:
    return Message(message.topic, b"Bob", keys=letter.message.keys)


with Server() as server, Admin(server.name_server) as admin, Producer(server.name_server) as producer:
    admin.topics.create("payments")
    consumer = PushConsumer(server.name_server, group="bank", start_at="first")

    @consumer.on("payments")
    def pay(message: StoredMessage) -> None:
        name = message.body.decode()
        if name == "Ben":
            print(f"payment of {name}: no such account")
            raise DeadLetter("no such account")
        if name == "Ann" and message.reconsume_times == 0:
            print(f"payment of {name}: the bank is closed")
            raise RetryLater("the bank is closed", delay_level=1)
        print(f"payment of {name}: done, attempt {message.reconsume_times + 1}")
        done.set()

    with consumer:
        producer.send("payments", b"Ann")
        done.wait(30)
        done.clear()
        producer.send("payments", b"Ben")
        while not (letters := admin.dead_letters.read("bank")):
            time.sleep(0.05)
        print(len(letters), "dead letter:", letters[0].message.body, "because:", letters[0].reason)

        admin.dead_letters.resend(letters, edit=correct)
        done.wait(30)
