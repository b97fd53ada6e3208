"""CPU of a broker for a pop of 32 messages with its acks, beside a pull of 32 messages with its commit.

python -m bench.broker.pops              ours, about half a minute
python -m bench.broker.pops --apache     and the Apache broker

One client asks and waits; acks are pipelined. The CPU is that of the broker's process, so it includes the system calls.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.broker.calls import Line
from bench.broker.machine import cpu_s
from bench.broker.servers import Target, Wishes, apache, pocketmq
from pocketmq.codes import Language, PullFlag, RequestCode
from pocketmq.protocol.api.messages import AckMessage, PopMessage, PullMessage, SendMessageV2, UpdateConsumerOffset
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.frames import FrameSplitter
from pocketmq.protocol.pop import BatchAck, BatchAckEntry, Handle, encode_bits

TOPIC: Final = "bench_pops"
COUNT: Final = 32
BODY_BYTES: Final = 100
INVISIBLE_MS: Final = 600_000
WARM_ROUNDS: Final = 200


class Member:
    """A member of a group, and of another one that pulls."""

    def __init__(self, line: Line) -> None:
        self._line = line
        settings = line.call(RequestCode.GET_BROKER_CONFIG).body.decode()
        self._broker = next(row[11:] for row in settings.splitlines() if row.startswith("brokerName="))

    def fill(self, messages: int) -> None:
        self._line.create_topic(TOPIC, 1)
        batch = encode_batch([(0, b"x" * BODY_BYTES, b"")] * COUNT)
        for _ in range(messages // COUNT):
            header = SendMessageV2("bench", TOPIC, "TBW102", 1, 0, 0, int(time.time() * 1000), 0, "", batch=True)
            self._line.call(RequestCode.SEND_BATCH_MESSAGE, header.encode(), batch)

    def pull_and_commit(self, number: int) -> None:
        at = number * COUNT
        header = PullMessage("pulls", TOPIC, 0, at, COUNT, PullFlag.SUBSCRIPTION, 0, 0, 0, "*", "TAG")
        self._line.call(RequestCode.PULL_MESSAGE, header.encode())
        commit = UpdateConsumerOffset("pulls", TOPIC, 0, at + COUNT)
        self._line.call(RequestCode.UPDATE_CONSUMER_OFFSET, commit.encode())

    def pop_and_batch_ack(self, number: int) -> None:
        handle, offsets = self._pop("batches")
        entry = BatchAckEntry(
            "batches",
            TOPIC,
            str(handle.flag),
            handle.start,
            0,
            handle.revive_queue,
            handle.pop_ms,
            handle.invisible_ms,
            encode_bits(handle.start, offsets),
        )
        self._line.call(RequestCode.BATCH_ACK_MESSAGE, None, BatchAck(self._broker, (entry,)).encode())

    def pop_and_acks(self, number: int) -> None:
        handle, offsets = self._pop("singles")
        frames: list[bytes] = []
        for offset in offsets:
            header = AckMessage("singles", TOPIC, 0, handle._replace(offset=offset).text(), offset)
            command = Command(RequestCode.ACK_MESSAGE, header.encode(), opaque=offset, language=Language.JAVA)
            frames.append(encode_command(command))
        self._line.socket.sendall(b"".join(frames))
        splitter, left = FrameSplitter(), len(frames)
        while left:
            left -= len(splitter.feed(self._line.socket.recv(1 << 16)))

    def _pop(self, group: str) -> tuple[Handle, list[int]]:
        header = PopMessage(group, TOPIC, 0, COUNT, INVISIBLE_MS, 0, 0, int(time.time() * 1000), "TAG", "*")
        ext = self._line.call(RequestCode.POP_MESSAGE, header.encode()).ext or {}
        flag, _, start = ext["startOffsetInfo"].split(" ")
        times = int(ext["popTime"]), int(ext["invisibleTime"]), int(ext["reviveQid"])
        handle = Handle(int(start), *times, int(flag), self._broker, 0, int(start))
        return handle, [int(offset) for offset in ext["msgOffsetInfo"].split(" ")[2].split(",")]


def show(target: Target, rounds: int) -> None:
    with Line(target.port) as line:
        member = Member(line)
        member.fill((rounds + WARM_ROUNDS) * COUNT)
        base_us = 0.0
        for round_of in (member.pull_and_commit, member.pop_and_batch_ack, member.pop_and_acks):
            used_us = _used_us(target, round_of, rounds)
            base_us = base_us or used_us
            name = round_of.__name__.replace("_", " ")
            print(f"{target.name:12} {name:20} {used_us:8.1f} us of CPU   {used_us / base_us:5.2f} x")


def _used_us(target: Target, round_of: Callable[[int], None], rounds: int) -> float:
    """Microseconds of the server's CPU for each round."""
    for number in range(WARM_ROUNDS):
        round_of(number)
    before = cpu_s(target.pids)
    for number in range(rounds):
        round_of(WARM_ROUNDS + number)
    return (cpu_s(target.pids) - before) / rounds * 1e6


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.broker.pops")
    parser.add_argument("--rounds", type=int, default=2_000, help="pulls or pops of one kind")
    parser.add_argument("--apache", action="store_true", help="measure the Apache broker too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        with pocketmq(Path(folder) / "ours", Wishes()) as target:
            show(target, options.rounds)
        if options.apache:
            with apache(Path(folder) / "apache", Wishes()) as target:
                show(target, options.rounds)


if __name__ == "__main__":
    main()
