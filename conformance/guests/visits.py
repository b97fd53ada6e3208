"""The checks of clients of other languages with our servers. Our Python client is the other side."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from conformance.guests.programs import GUESTS, Guest
from conformance.programs import OurServer
from conformance.python.against import ACT_S, ATTEMPTS, SETTINGS
from conformance.python.stage import Act, Basket, Stage, Traits, numbered, played
from conformance.report import Scenario, Trial
from pocketmq.client import AsyncProducer
from pocketmq.model.message import StoredMessage

COLUMNS: Final = tuple(GUESTS)
BIG: Final = b"z" * 8192
Visit = Callable[["Host"], Awaitable[None]]


class Host:
    """A stage, and the guest that is visiting."""

    def __init__(self, stage: Stage, column: str) -> None:
        self.stage = stage
        self.column = column

    @asynccontextmanager
    async def guest(self, *arguments: str, ready: str = "running") -> AsyncIterator[Guest]:
        """A guest that has said that it is ready, until the end of the block."""
        guest = Guest(self.column, self.stage.name_server, *arguments)
        try:
            await self.stage.until(f"{arguments[0]}: {ready}", lambda: guest.is_there(ready))
            yield guest
        finally:
            await asyncio.to_thread(guest.leave)

    async def sent(self) -> tuple[list[StoredMessage], list[Any]]:
        """Let the guest send all its messages; what is stored, and what it was answered."""
        topic = await self.stage.topic(queues=4)
        async with self.guest("send", topic, ready="done") as guest:
            answers = guest.all_of("sent")
        delayed = [b"delayed"]

        async def all_there() -> list[StoredMessage]:
            found = await self.stage.stored(topic)
            return found if {*delayed, BIG} <= {message.body for message in found} else []

        return await self.stage.comes("all messages", all_there), answers

    @asynccontextmanager
    async def consuming(
        self, filtered: str = "*", mode: str = "plain", queues: int = 2
    ) -> AsyncIterator[tuple[Guest, AsyncProducer, str, str]]:
        """A guest that consumes a topic, and a producer of ours."""
        topic, group = await self.stage.topic(queues=queues), self.stage.name("CG_guest")
        async with self.stage.producer() as producer, self.guest("consume", topic, group, filtered, mode) as guest:
            yield guest, producer, topic, group

    async def got(self, guest: Guest, count: int, timeout_s: float = 90) -> list[dict[str, Any]]:
        await self.stage.until(f"{count} messages", lambda: len(guest.all_of("got")) >= count, timeout_s)
        return guest.all_of("got")


VISITS: Final[list[tuple[str, str, Visit]]] = []
"""What is checked, the talent that it needs, and how."""


def visit(check: str, talent: str = "") -> Callable[[Visit], Visit]:
    def add(function: Visit) -> Visit:
        VISITS.append((check, talent, function))
        return function

    return add


@visit("sends: content, tag, keys, properties, ids and offsets are correct; large bodies; a delay level")
async def sends(host: Host) -> None:
    stage = host.stage
    stored, answers = await host.sent()
    by_body = {message.body: message for message in stored}
    rich = by_body[b"rich"]
    stage.same(
        "tag, keys, property", (rich.tags, rich.keys, rich.properties.get("colour")), ("TagA", ["k1", "k2"], "red")
    )
    told = {
        answer["id"] for answer in (*answers[:2], *answers[3:])
    }  # a delayed one may have another id until it is due
    known = {name for message in stored for name in (message.message_id, message.offset_id)}
    stage.same("ids", told - known, set())
    stage.same("statuses", {answer["status"] for answer in answers}, {0})
    stage.same("offset of the first", int(answers[0]["offset"]), by_body[b"plain"].queue_offset)
    delayed = by_body[b"delayed"]
    stage.between("delay, in ms", delayed.store_ms - delayed.born_ms, 900, 20_000)


@visit("sends in order: messages of one key are in one queue, in the order of the sends", "ordered sends")
async def ordered_sends(host: Host) -> None:
    stored = [message for message in (await host.sent())[0] if message.body.startswith(b"ordered")]
    host.stage.same("queues", len({message.queue_id for message in stored}), 1)
    host.stage.same("order", [message.body for message in stored], numbered(5, "ordered"))


@visit("sends a batch, and one message one-way", "batches")
async def batches(host: Host) -> None:
    stored = (await host.sent())[0]
    batch = [message for message in stored if message.body.startswith(b"batch")]
    host.stage.same("batch", [message.body for message in batch], numbered(3, "batch"))
    host.stage.same("one-way", sum(message.body == b"one-way" for message in stored), 1)


@visit("consumes: every message once, as it was sent, and the group knows how far it is")
async def consumes(host: Host) -> None:
    stage = host.stage
    async with host.consuming() as (guest, producer, topic, group), stage.admin() as admin:
        for body in numbered(10):
            await producer.send(topic, body, tags="TagA", keys=["k1", "k2"], properties={"colour": "red"})
        await producer.send(topic, BIG, tags="TagA", keys=["k1", "k2"], properties={"colour": "red"})
        got = await host.got(guest, 11)

        async def is_committed() -> bool:
            return sum(offset or 0 for offset in (await admin.offsets.committed(group, topic)).values()) == 11

        await stage.comes("all committed", is_committed)
    bodies = Counter(one["body"].encode() for one in got)
    stage.same("bodies", bodies, Counter([*numbered(10), BIG]))
    stage.same(
        "tags, keys, colours", {(one["tags"], one["keys"], one["colour"]) for one in got}, {("TagA", "k1 k2", "red")}
    )


@visit("consumes by tags")
async def tags(host: Host) -> None:
    async with host.consuming("TagA || TagC") as (guest, producer, topic, _):
        for number, body in enumerate(numbered(9)):
            await producer.send(topic, body, tags=f"Tag{'ABC'[number % 3]}")
        await host.got(guest, 6)
        await asyncio.sleep(1)
        got = guest.all_of("got")
    host.stage.same("bodies", sorted(one["body"] for one in got), ["m0", "m2", "m3", "m5", "m6", "m8"])


@visit("consumes by SQL92", "sql")
async def sql(host: Host) -> None:
    async with host.consuming("n > 5 AND colour = 'red'", "sql") as (guest, producer, topic, _):
        for number, body in enumerate(numbered(10)):
            await producer.send(topic, body, properties={"n": str(number), "colour": "red" if number % 2 else "blue"})
        await host.got(guest, 2)
        await asyncio.sleep(1)
        got = guest.all_of("got")
    host.stage.same("bodies", sorted(one["body"] for one in got), ["m7", "m9"])


@visit("consumes in order, under locks of queues", "orderly")
async def orderly(host: Host) -> None:
    async with host.consuming(mode="orderly", queues=3) as (guest, producer, topic, _):
        for body in numbered(20):
            for key in ("a", "b", "c"):
                await producer.send(topic, key.encode() + body, sharding_key=key)
        got = await host.got(guest, 60)
    for key in "abc":
        found = [one["body"] for one in got if one["body"].startswith(key)]
        host.stage.same(f"order of {key}", found, [f"{key}m{number}" for number in range(20)])


@visit("broadcasting: two of them get every message each")
async def broadcasting(host: Host) -> None:
    stage, topic = host.stage, await host.stage.topic(queues=2)
    arguments = ("consume", topic, stage.name("CG_guest"), "*", "broadcast")
    async with stage.producer() as producer, host.guest(*arguments) as one, host.guest(*arguments) as two:
        await asyncio.sleep(5)  # so that both have looked where the queues end
        for body in numbered(6):
            await producer.send(topic, body)
        for guest in (one, two):
            got = await host.got(guest, 6)
            stage.same("bodies", sorted(each["body"] for each in got), [body.decode() for body in numbered(6)])


@visit("a failed message is delivered again")
async def retry(host: Host) -> None:
    async with host.consuming(mode="retry", queues=1) as (guest, producer, topic, _):
        await producer.send(topic, b"again", tags="TagA", keys=["k1"])
        got = await host.got(guest, 2)
    host.stage.same("attempts", [(one["body"], one["tries"]) for one in got], [("again", 0), ("again", 1)])
    host.stage.same("tag and keys", (got[1]["tags"], got[1]["keys"]), ("TagA", "k1"))


@visit("a message that fails too often is a dead letter", "dead letters")
async def dead(host: Host) -> None:
    stage = host.stage
    async with host.consuming(mode="dead", queues=1) as (guest, producer, topic, group), stage.admin() as admin:
        await producer.send(topic, b"doomed", tags="TagA")
        await host.got(guest, 2)
        letters = await stage.comes("a dead letter", lambda: admin.dead_letters.read(group), 90)
    stage.same(
        "the letter", [(one.message.body, one.topic, one.message.tags) for one in letters], [(b"doomed", topic, "TagA")]
    )


@visit("transactions: committed, rolled back, decided by a check", "transactions")
async def transactions(host: Host) -> None:
    stage, basket = host.stage, Basket()
    topic = await stage.topic(queues=2)
    consumer = stage.push(stage.name("CG"))
    consumer.on(topic)(basket)
    async with consumer, host.guest("transactions", topic) as guest:
        await stage.until("both that count", lambda: len(basket) >= 2)
        await stage.until("both questions", lambda: len(set(guest.all_of("asked"))) >= 2)
        await asyncio.sleep(1)
    stage.same("bodies", sorted(basket.bodies), [b"commit", b"later-commit"])
    stage.same("asked about", sorted(set(guest.all_of("asked"))), ["later-commit", "later-rollback"])


@visit("shares a group with a Python member: every message is delivered once")
async def shares(host: Host) -> None:
    stage, basket = host.stage, Basket()
    async with host.consuming(queues=4) as (guest, producer, topic, group):
        member = stage.push(group)
        member.on(topic)(basket)
        async with member:
            await stage.owns(member, 2)
            await asyncio.sleep(12)  # until the guest knows the member, too: one client queries members every 10 s
            for body in numbered(40):
                await producer.send(topic, body)
            await stage.until("all", lambda: len(basket) + len(guest.all_of("got")) >= 40, 90)
            await asyncio.sleep(1)
    found = Counter([*basket.bodies, *(one["body"].encode() for one in guest.all_of("got"))])
    stage.same("messages", found, Counter(numbered(40)))
    stage.same("of the Python member", len(basket), 20)


def _run(trial: Trial) -> None:
    with OurServer.both(trial.say, trial.folder, SETTINGS) as ours:
        asyncio.run(_all(trial, ours.name_server))


async def _all(trial: Trial, name_server: str) -> None:
    gate = asyncio.Semaphore(4)

    async def go(check: str, function: Visit) -> None:
        flaws: list[str] = []
        for _ in range(ATTEMPTS):
            async with gate:
                flaws = await _visited(trial.version, name_server, function)
            if not flaws:
                break
            trial.say(f"{check}: {'; '.join(flaws)}"[:500])
        trial.expect(check, flaws)

    await asyncio.gather(*(go(check, function) for check, function in _visits_of(trial.version)))


async def _visited(column: str, name_server: str, function: Visit) -> list[str]:
    async def play(stage: Stage) -> None:
        await function(Host(stage, column))

    return await played(Act("", play), Stage(name_server, Traits()), ACT_S)


def _visits_of(column: str) -> list[tuple[str, Visit]]:
    talents = GUESTS[column].talents
    return [(check, function) for check, talent, function in VISITS if not talent or talent in talents]


SCENARIOS: Final = tuple(
    Scenario("guests", [check for check, _ in _visits_of(column)], _run, [column]) for column in COLUMNS
)
