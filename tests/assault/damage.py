"""Scenes: derived files are damaged, the log becomes shorter under a running consumer, a topic is created again."""

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final

from tests.assault.stage import QUEUES, TOPIC, Load, Stage

from pocketmq import Admin

PAGE: Final = 4096
ENTRY: Final = 20
MESSAGES: Final = 4_000
LOST_TAIL: Final = 2_000
"""Bytes of the log that a power loss takes."""


def _filled(stage: Stage) -> Load:
    """A load that has sent `MESSAGES`, of which nothing is consumed yet."""
    load = Load(stage.name_server, consuming=False)
    load.__enter__()
    stage.until(lambda: len(load.acknowledged) > MESSAGES, "the messages")
    load.stop_sending()
    return load


def damaged_entries(stage: Stage) -> None:
    """Queue files are damaged between a clean stop and a start; everything must still be handled."""
    stage.serve()
    load = _filled(stage)
    try:
        stage.stop()
        for queue in range(QUEUES):
            damage = _zero_page if queue % 2 else _flip_bits
            damage(_first_file(stage, queue))
        stage.start_again()
        load.begin_consuming()
        stage.drain(load)
        stage.facts.append(f"{len(load.acknowledged)} acknowledged, all handled")
    finally:
        load.__exit__(None, None, None)
    stage.stop()


def _zero_page(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(bytes(PAGE))


def _flip_bits(path: Path) -> None:
    """One bit in the log offset and in the size of some entries."""
    with path.open("r+b") as file:
        for number, byte in ((3, 6), (5, 11), (7, 2)):
            file.seek(number * ENTRY + byte)
            (old,) = file.read(1)
            file.seek(number * ENTRY + byte)
            file.write(bytes((old ^ 4,)))


def removed_while_running(stage: Stage) -> None:
    """Queue files are removed while the server runs and a consumer has a lag."""
    stage.serve()
    load = _filled(stage)
    try:
        for queue in range(QUEUES):
            _first_file(stage, queue).unlink()
        load.begin_consuming()
        stage.drain(load)
        stage.facts.append(f"{len(load.acknowledged)} acknowledged, all handled")
    finally:
        load.__exit__(None, None, None)
    stage.server.terminate(15)


def shorter_log(stage: Stage) -> None:
    """A crash truncates the log under a running consumer: messages sent afterwards must be handled."""
    stage.serve()
    with Load(stage.name_server) as load:
        stage.until(lambda: len(load.handled) > MESSAGES, "the messages")
        load.stop_sending()
        stage.drain(load)
        stage.server.kill()
        cut_log(stage.data / "commitlog", LOST_TAIL)
        stage.start_again()
        with Load(stage.name_server, first=1_000_000, consuming=False) as again:
            stage.until(lambda: len(again.acknowledged) > 200, "sends after the crash")
            again.stop_sending()
            stage.until(lambda: not again.acknowledged - load.handled.keys(), "what was sent after the crash", 60)
            stage.facts.append(f"{len(again.acknowledged)} sent after the crash, all handled")
    stage.stop()


def created_again(stage: Stage) -> None:
    """A topic is deleted and created again under a running consumer: it starts at its beginning."""
    stage.serve()
    with Load(stage.name_server) as load:
        stage.until(lambda: len(load.handled) > 1_000, "the messages")
        load.stop_sending()
        stage.drain(load)
        with Admin(stage.name_server) as admin:
            admin.topics.delete(TOPIC)
            admin.topics.create(TOPIC, queues=QUEUES)
        with Load(stage.name_server, first=1_000_000, consuming=False) as again:
            stage.until(lambda: len(again.acknowledged) > 200, "sends to the new topic")
            again.stop_sending()
            began = monotonic()
            stage.until(lambda: not again.acknowledged - load.handled.keys(), "messages of the new topic", 60)
            stage.facts.append(
                f"{len(again.acknowledged)} sent to the new topic, all handled within {monotonic() - began:.0f} s"
            )
    stage.stop()


def _first_file(stage: Stage, queue: int) -> Path:
    return min((stage.data / "consumequeue" / TOPIC / str(queue)).iterdir())


def cut_log(folder: Path, size: int) -> None:
    """Take the last `size` bytes that are not zero from the newest log file."""
    for path in sorted(folder.iterdir(), reverse=True):
        data = path.read_bytes().rstrip(b"\0")
        if len(data) > size:
            with path.open("r+b") as file:
                file.seek(len(data) - size)
                file.write(bytes(size))
            return
        with path.open("r+b") as file:
            file.write(bytes(len(data)))
        size -= len(data)


SCENES: Final[dict[str, Callable[[Stage], None]]] = {
    "zeroed pages and flipped bits in queue files after a clean stop": damaged_entries,
    "queue files removed while it runs": removed_while_running,
    "a log that a crash made shorter, under a running consumer": shorter_log,
    "a topic deleted and created again, under a running consumer": created_again,
}
