"""A storm: members of one group join, stall, fail, die and return at random, in virtual time; a checker counts every message.

python -m tests.broker.pop.storm                      50 members and 200,000 messages, or `make pop-storm`: some minutes
python -m tests.broker.pop.storm --seed 7             the chances of an earlier run
"""

import asyncio
import random
from collections import Counter
from contextlib import suppress
from time import monotonic
from typing import NamedTuple

import click
from tests.broker.pop.pops import GROUP, Leased, ack_all, change, leased, popping
from tests.broker.running import Client, RunningBroker, running

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.errors import PocketMQError
from pocketmq.model import GroupName
from pocketmq.model.names import dlq_topic
from pocketmq.protocol.api.messages import AckMessage, SendMessageV2
from pocketmq.protocol.batch import encode_batch
from pocketmq.protocol.bodies.clients import SubscriptionGroupConfig
from pocketmq.protocol.pop import Handle
from pocketmq.store.settings import FlushMode
from pocketmq.testing import run

RETRIES = 3
EARLY_MS = 300
"""So long before the end of its lease, a member is sure that its ack is in time."""
LATE_MS = 1_500
"""So long after the end, an ack is surely too late."""
BATCH = 32
HOUR_S = 3_600.0


class Scale(NamedTuple):
    members: int
    messages: int
    queues: int = 8


class _Held(NamedTuple):
    member: int
    until_ms: int


class Checker:
    """What members saw of each message. `faults` is empty if every rule was kept."""

    def __init__(self) -> None:
        self.handled: Counter[int] = Counter()
        """How often a message was handled successfully, and acknowledged in time."""
        self.facts: Counter[str] = Counter()
        self.faults: list[str] = []
        self._held: dict[int, _Held] = {}
        self._attempts: dict[int, int] = {}

    def received(self, member: int, number: int, attempt: int, handle: Handle) -> None:
        held = self._held.get(number)
        if number in self.handled:
            self._broken(f"message {number} returned to member {member} after its ack")
        if held is not None and handle.pop_ms < held.until_ms:
            early_ms = held.until_ms - handle.pop_ms
            self._broken(f"message {number}: members {held.member} and {member} had it, {early_ms} ms too early")
        if not self._attempts.get(number, -1) < attempt <= RETRIES:
            self._broken(f"message {number}: attempt {attempt} after {self._attempts.get(number)}")
        self._attempts[number] = attempt
        self.hold(member, number, handle)
        self.facts["deliveries"] += 1

    def hold(self, member: int, number: int, handle: Handle) -> None:
        self._held[number] = _Held(member, handle.pop_ms + handle.invisible_ms)

    def acknowledged(self, number: int) -> None:
        self.handled[number] += 1
        del self._held[number]

    def _broken(self, fault: str) -> None:
        if len(self.faults) < 20:
            self.faults.append(fault)

    def check_end(self, messages: int, dead: list[tuple[int, int]]) -> None:
        """Every message is handled once, or is a dead letter once. `dead`: its number, and how often it was tried."""
        letters = Counter(number for number, _ in dead)
        for number in range(messages):
            if self.handled[number] + letters[number] != 1:
                self._broken(f"message {number}: {self.handled[number]} times handled, {letters[number]} dead letters")
        for number, attempts in dead:
            if attempts != RETRIES + 1:
                self._broken(f"message {number} became a dead letter after {attempts} attempts")


class _Died(Exception):
    """The member ends without a word."""


class Member:
    """One member: it pops and handles until it dies; then another one joins in its position."""

    def __init__(self, broker: RunningBroker, checker: Checker, number: int, chance: random.Random) -> None:
        self._broker = broker
        self._checker = checker
        self._number = number
        self._chance = chance

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(0, 3))
            client = await self._broker.connect(f"10.1.{self._number % 250}.{self._chance.randrange(1, 250)}")
            self._checker.facts["joined"] += 1
            with suppress(_Died, PocketMQError):
                while True:
                    await self._work(client)
            client.peer.connection.abort(ConnectionError("the member died"))  # type: ignore[arg-type]

    async def _work(self, client: Client) -> None:
        chance = self._chance
        header = popping(
            most=chance.choice([1, 4, 16, 32]),
            invisible_ms=chance.choice([3_000, 8_000, 20_000]),
            poll_ms=5_000,
            born_ms=self._now_ms(),
        )
        answer = await client.ask(RequestCode.POP_MESSAGE, header)
        batch = leased(answer) if answer.code == ResponseCode.SUCCESS else []
        for one in batch:
            self._checker.received(self._number, int(one.body), one.message.reconsume_times, one.handle)
        match chance.randrange(40):
            case 0:
                raise _Died
            case 1:
                await self._stall(client, batch)
            case 2 | 3:
                await self._handle(client, [await self._extended(client, one) for one in batch])
            case _:
                await self._handle(client, batch)

    def _now_ms(self) -> int:
        return self._broker.clock.steady_ms()

    async def _extended(self, client: Client, one: Leased) -> Leased:
        """The message with a longer lease. The old handle is no longer valid."""
        if self._now_ms() > one.handle.pop_ms + one.handle.invisible_ms - EARLY_MS:
            return one
        longer = await change(client, one, 15_000)
        self._checker.hold(self._number, int(one.body), longer.handle)
        await self._ack(client, [one])
        self._checker.facts["extended"] += 1
        return longer

    async def _stall(self, client: Client, batch: list[Leased]) -> None:
        """The member stalls until its leases are over; its acks change nothing then."""
        if not batch:
            return
        end_ms = max(one.handle.pop_ms + one.handle.invisible_ms for one in batch)
        await asyncio.sleep((end_ms - self._now_ms() + LATE_MS) / 1000)
        self._checker.facts["late acks"] += len(batch)
        await self._ack(client, batch)

    async def _handle(self, client: Client, batch: list[Leased]) -> None:
        await asyncio.sleep(self._chance.choice([0, 0, 0.02, 0.5]))
        done: list[Leased] = []
        for one in batch:
            fate = self._chance.randrange(20)
            if self._now_ms() > one.handle.pop_ms + one.handle.invisible_ms - EARLY_MS:
                continue
            if fate == 0:
                returned = await change(client, one, self._chance.choice([0, 1_000]))
                self._checker.hold(self._number, int(one.body), returned.handle)
                self._checker.facts["returned"] += 1
            elif fate > 1:
                done.append(one)
        if done:
            await self._ack(client, done)
            for one in done:
                self._checker.acknowledged(int(one.body))

    async def _ack(self, client: Client, leases: list[Leased]) -> None:
        """By one batch, or by single acks that arrive together."""
        if self._chance.randrange(2):
            by_flag: dict[int, list[Leased]] = {}
            for one in leases:
                by_flag.setdefault(one.handle.flag, []).append(one)
            answers = [await ack_all(client, some) for some in by_flag.values()]
        else:
            headers = (
                AckMessage(GROUP, one.topic, one.handle.queue_id, one.handle.text(), one.handle.offset)
                for one in self._chance.sample(leases, len(leases))
            )
            answers = await asyncio.gather(*(client.ask(RequestCode.ACK_MESSAGE, header) for header in headers))
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}, answers


async def send_all(broker: RunningBroker, scale: Scale) -> None:
    client = await broker.connect("10.2.0.1")
    for first in range(0, scale.messages, BATCH):
        body = encode_batch([(0, b"%d" % number, b"") for number in range(first, min(first + BATCH, scale.messages))])
        queue_id = first // BATCH % scale.queues
        header = SendMessageV2("PG", "T", "TBW102", scale.queues, queue_id, 0, 1, 0, "", batch=True)
        answer = await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


async def storm(scale: Scale, seed: int, flush: FlushMode = FlushMode.ASYNC) -> Checker:
    """Run until every message is handled or dead, and for the time of the longest lease after that."""
    checker, chance = Checker(), random.Random(seed)
    dead_letters = dlq_topic(GroupName(GROUP))
    store = {"log_file_bytes": 16 << 20, "queue_file_entries": 20_000, "max_message_bytes": 1 << 20, "flush": flush}
    async with running(store=store) as broker:
        broker.parts.chance.seed(seed)
        broker.make_topic("T", scale.queues)
        broker.parts.state.groups.put([SubscriptionGroupConfig(GROUP, retry_max_times=RETRIES)], 0)
        members = [Member(broker, checker, number, random.Random(chance.random())) for number in range(scale.members)]
        tasks = [asyncio.ensure_future(member.run()) for member in members]
        await send_all(broker, scale)
        deadline = asyncio.get_running_loop().time() + HOUR_S
        while len(checker.handled) + broker.store.max_offset(dead_letters, 0) < scale.messages and not checker.faults:
            if asyncio.get_running_loop().time() > deadline or any(task.done() for task in tasks):
                break
            await asyncio.sleep(1)
        await asyncio.sleep(40)
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, asyncio.CancelledError):
                checker.faults.append(f"a member failed: {outcome!r}")
        dead = [(int(message.body), message.reconsume_times) for message in broker.stored(dead_letters)]
        checker.check_end(scale.messages, dead)
        checker.facts["dead letters"] = len(dead)
        leases = broker.parts.state.leases
        if len(leases) or leases.in_flight or not broker.parts.state.positions.is_settled:
            checker.faults.append(f"{len(leases)} leases and {dict(leases.in_flight)} messages in flight are left")
    return checker


@click.command()
@click.option("--messages", default=200_000, show_default=True)
@click.option("--members", default=50, show_default=True)
@click.option("--seed", type=int, help="Repeats the chances of an earlier run.")
def main(messages: int, members: int, seed: int | None) -> None:
    """Run one storm. Every message must be handled once, or become a dead letter after its last attempt."""
    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    began = monotonic()
    click.echo(f"{members} members, {messages:,} messages, seed {chosen}")
    checker = run(storm(Scale(members, messages), chosen))
    click.echo(", ".join(f"{count:,} {name}" for name, count in sorted(checker.facts.items())))
    click.echo(f"{len(checker.handled):,} handled once; {monotonic() - began:.0f} s")
    for fault in checker.faults:
        click.echo(f"broken: {fault}")
    raise SystemExit(bool(checker.faults))


if __name__ == "__main__":
    main()
