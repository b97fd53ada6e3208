"""Clients as programs, for tests that kill processes. Each prints a line for each step.

python -m tests.client.client_programs member NAME_SERVER GROUP TOPIC    "ready CLIENT_ID", then each body that was handled
python -m tests.client.client_programs sender NAME_SERVER TOPIC          each body that is stored; reads "COUNT" or "COUNT TOPIC"
python -m tests.client.client_programs prefork NAME_SERVER TOPIC         the same, from a process and its children by fork

A member leaves and a sender ends when its input ends, so none of them outlives who started it.
"""

import os
import sys
import warnings
from concurrent.futures import Future, wait
from time import monotonic, sleep

import click

from pocketmq import Producer, PushConsumer, SendResult, StoredMessage

WINDOW = 20
"""Messages of a sender that are on their way at the same time."""
PAUSE_S = 0.05
"""Before what failed is sent again."""


def say(*lines: str) -> None:
    """Written with one call, so that the line is complete even if this process is killed."""
    os.write(sys.stdout.fileno(), "".join(f"{line}\n" for line in lines).encode())


@click.group()
def main() -> None:
    """Clients that run commands."""


@main.command()
@click.argument("name_server")
@click.argument("group")
@click.argument("topic")
@click.option("--work-ms", default=1, help="How long a message keeps a listener waiting.")
@click.option("--spin-s", default=0.0, help="How long a message keeps a listener computing.")
def member(name_server: str, group: str, topic: str, work_ms: int, spin_s: float) -> None:
    consumer = PushConsumer(
        name_server,
        group=group,
        start_at="first",
        route_poll_ms=1_000,
        heartbeat_ms=1_000,
        rebalance_ms=1_000,
        persist_ms=1_000,
    )

    @consumer.on(topic)
    def handle(message: StoredMessage) -> None:
        if spin_s:
            say(f"spins {message.body.decode()}")
            end = monotonic() + spin_s
            while monotonic() < end:
                pass
        sleep(work_ms / 1000)
        say(message.body.decode())

    with consumer:
        say(f"ready {consumer.client_id}")
        sys.stdin.read()


@main.command()
@click.argument("name_server")
@click.argument("topic")
def sender(name_server: str, topic: str) -> None:
    with Producer(name_server, group="PG_sender", route_poll_ms=1_000, heartbeat_ms=1_000) as producer:
        say("ready")
        first = 0
        for line in sys.stdin:
            count, *other_topic = line.split()
            bodies = [str(number) for number in range(first, first + int(count))]
            first += len(bodies)
            for start in range(0, len(bodies), WINDOW):
                _send_until_stored(producer, (other_topic or [topic])[0], bodies[start : start + WINDOW])


def _send_until_stored(producer: Producer, topic: str, bodies: list[str]) -> None:
    """Repeat a send until it succeeds. A message may be stored twice, but none is lost."""
    left = bodies
    while left:
        sent: dict[str, Future[SendResult]] = {body: producer.submit(topic, body.encode()) for body in left}
        wait(sent.values())
        stored = [body for body, future in sent.items() if future.exception() is None]
        say(*stored)
        left = [body for body in left if body not in stored]
        if left:
            sleep(PAUSE_S)


@main.command()
@click.argument("name_server")
@click.argument("topic")
@click.option("--children", "count", default=3)
@click.option("--messages", default=50)
def prefork(name_server: str, topic: str, count: int, messages: int) -> None:
    """As a server of web pages does that loads its application, uses it, and forks."""
    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn about every fork with threads
    producer = Producer(name_server, group="PG_prefork")
    producer.start()
    _send_some(producer, topic, "before", messages)
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            _send_some(producer, topic, f"child-{number}", messages)
            producer.stop()
            os._exit(0)
        children.append(child)
        _send_some(producer, topic, f"parent-{number}", messages)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * count
    _send_some(producer, topic, "after", messages)
    producer.stop()
    say("done")


def _send_some(producer: Producer, topic: str, who: str, messages: int) -> None:
    """Half of them one by one, half of them at once: the two ways go over different connections."""
    bodies = [f"{who}-{number}" for number in range(messages)]
    for body in bodies[::2]:
        producer.send(topic, body.encode())
        say(body)
    futures = [producer.submit(topic, body.encode()) for body in bodies[1::2]]
    for future in futures:
        future.result(30)
    say(*bodies[1::2])


if __name__ == "__main__":
    main()
