"""A Java member, two Python push consumers and a simple consumer share a group, with each setting of the broker.

POP      every message is handled once; those whose body ends with 7 fail first, and return alone
PULL     an administrator switches the group, and back, while messages are sent: none is lost
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any, Final

from conformance import apache
from conformance.apache import ApacheBroker
from conformance.pops.java_popper import JavaPopper
from conformance.programs import OurServer
from conformance.python.stage import Stage, Traits
from conformance.report import Scenario, Trial
from pocketmq.client import AsyncAdmin, AsyncProducer, AsyncSimpleConsumer
from pocketmq.model.message import StoredMessage
from pocketmq.protocol.pop import pop_retry_topic

COLUMNS: Final = ("PocketMQ, Java 5.5.0", "PocketMQ, Java 5.3.3", "5.5.0", "5.3.3")
SETTINGS: Final[dict[str, dict[str, object]]] = {
    "retry topics of version 1, no buffer": {},
    "retry topics of version 2": {"enableRetryTopicV2": "true"},
    "with buffer and batch acks": {"enablePopBufferMerge": "true", "enablePopBatchAck": "true"},
}
MESSAGES: Final = 200
SWITCHES: Final = 60
COME_S: Final = 150
QUIET_S: Final = 15
"""Longer than a lease that was not acknowledged."""
INVISIBLE_MS: Final = 10_000
START_S: Final = 120
WORK_S: Final = 0.1
"""What a listener takes, so that no member gets all messages."""
SHARED: Final = "Java, push and simple consumers share a group that pops: every message once, failed ones again"
SWITCHED: Final = "… and lose nothing when an administrator switches the group to pull and back"


class Group:
    """The members of one group, and what they handled."""

    def __init__(self, trial: Trial, name_server: str, java: str) -> None:
        self._stage = Stage(name_server, Traits())
        self._java_version = java
        self._trial = trial
        self.topic = self._stage.name("PopShared")
        self.group = self._stage.name("CG_pop")
        self.handled: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.by_simple = 0

    async def run(self) -> tuple[list[str], list[str]]:
        """What was wrong with each check."""
        async with AsyncExitStack() as running:
            admin = await running.enter_async_context(self._stage.admin())
            await admin.topics.create(self.topic, queues=4)
            await admin.groups.set_mode(self.group, self.topic, "POP")
            java = JavaPopper(self._java_version, self._stage.name_server, self.topic, self.group, "java")
            running.push_async_callback(asyncio.to_thread, java.leave)
            await asyncio.to_thread(java.wait_running, START_S)
            for mode in ("broker", "pop"):
                push = self._stage.push(
                    self.group, mode=mode, pop_invisible_ms=INVISIBLE_MS, workers=4, rebalance_ms=2000
                )
                push.on(self.topic)(self._listen)
                await running.enter_async_context(push)
            producer = await running.enter_async_context(self._stage.producer())
            shared = await self._shared(producer, java)
            await push.stop()  # a member with a mode of its own cannot be switched
            return shared, await self._switched(admin, producer, java)

    async def _listen(self, message: StoredMessage) -> bool:
        await asyncio.sleep(WORK_S)
        body = message.body.decode()
        if body.endswith("7") and not message.reconsume_times:
            self.failed[body] += 1
            return False
        self.handled[body] += 1
        return True

    async def _shared(self, producer: AsyncProducer, java: JavaPopper) -> list[str]:
        sent = [f"shared-{number}" for number in range(MESSAGES)]
        async with self._stage.simple(self.group, instance_name="simple") as simple:
            await simple.subscribe(self.topic)
            taking = asyncio.create_task(self._receive(simple))
            for body in sent:
                await producer.send(self.topic, body.encode())
            await self._come(sent, java)
            await asyncio.sleep(QUIET_S)
            taking.cancel()
            await asyncio.wait((taking,))
        found = self._found(java, "shared-")
        flaws = [f"{len(set(sent) - found.keys())} messages did not come"] if found.keys() != set(sent) else []
        flaws += (
            [f"came twice: {sorted(twice)}"] if (twice := [one for one, times in found.items() if times > 1]) else []
        )
        failed = Counter(self.failed) + Counter(body for body, _ in java.failed)
        wanted = Counter(body for body in sent if body.endswith("7"))
        flaws += [f"failed first: {failed} instead of {wanted}"] if failed != wanted else []
        shares = len(java.got), self.by_simple, len(self.handled) - self.by_simple
        flaws += [f"a member got nothing: Java, simple, push {shares}"] if not all(shares) else []
        self._trial.say(f"Java, simple and push consumers got {shares}")
        return flaws

    async def _receive(self, simple: AsyncSimpleConsumer) -> None:
        """Acknowledge several messages at once; give back those that fail."""
        while True:
            messages = await simple.receive(8, invisible_s=INVISIBLE_MS / 1000, wait_s=1)
            good = [message for message in messages if await self._listen(message)]
            self.by_simple += len(good)
            await simple.ack(good)
            for message in messages:
                if message not in good:
                    await simple.change_invisible(message, 1)
            await asyncio.sleep(0.2)

    async def _switched(self, admin: AsyncAdmin, producer: AsyncProducer, java: JavaPopper) -> list[str]:
        sent: list[str] = []
        for mode in ("PULL", "POP", "PULL"):
            await admin.groups.set_mode(self.group, self.topic, mode)
            for _ in range(SWITCHES):
                sent.append(f"switched-{len(sent)}")
                await producer.send(self.topic, sent[-1].encode())
                await asyncio.sleep(0.1)
        await self._come(sent, java)
        found = self._found(java, "switched-")
        return [f"{missing[:5]} of {len(sent)} did not come"] if (missing := sorted(set(sent) - found.keys())) else []

    async def _come(self, sent: list[str], java: JavaPopper) -> None:
        prefix = sent[0].partition("-")[0]
        end = self._stage.now + COME_S
        while self._found(java, prefix).keys() != set(sent) and self._stage.now < end:  # noqa: ASYNC110 there is no event
            await asyncio.sleep(0.2)

    def _found(self, java: JavaPopper, prefix: str) -> Counter[str]:
        found = Counter(self.handled) + Counter(body for body, _ in list(java.got))
        return Counter({body: times for body, times in found.items() if body.startswith(prefix)})

    async def retry_topics(self) -> dict[bool, int]:
        """The number of returned messages in the retry topic of each version."""
        found = {}
        async with self._stage.admin() as admin:
            names = await admin.topics.names(everything=True)
        for v2 in (False, True):
            name = pop_retry_topic(self.group, self.topic, v2=v2)
            found[v2] = len(await self._stage.stored(name)) if name in names else 0
        return found


def _runner(setting: str) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        broker, java = _programs(trial.version)
        settings: dict[str, Any] = {**SETTINGS[setting], "waitTimeMillsInSendQueue": 10_000}
        started = (
            OurServer.both(trial.say, trial.folder, settings)
            if broker is None
            else ApacheBroker(broker, trial.folder, settings, trial.say)
        )
        with started as servers:
            asyncio.run(_judge(trial, servers.name_server, java, setting))

    return run


async def _judge(trial: Trial, name_server: str, java: str, setting: str) -> None:
    group = Group(trial, name_server, java)
    shared, switched = await group.run()
    returned = await group.retry_topics()
    is_v2 = "version 2" in setting
    if not returned[is_v2] or returned[not is_v2]:
        shared.append(f"messages in retry topics of version 1 and 2: {returned[False]}, {returned[True]}")
    trial.expect(f"{setting}: {SHARED}", shared)
    trial.expect(f"{setting}: {SWITCHED}", switched)


def _programs(column: str) -> tuple[str | None, str]:
    """The versions of Apache's broker, if it is one, and of the Java member."""
    ours, _, java = column.partition(", Java ")
    return (None, java) if java else (ours, ours)


def unable(column: str) -> str:
    """Java members are needed in any case."""
    return apache.unable(_programs(column)[1])


SCENARIOS: Final = tuple(
    Scenario(f"POP, {setting}", [f"{setting}: {SHARED}", f"{setting}: {SWITCHED}"], _runner(setting))
    for setting in SETTINGS
)
