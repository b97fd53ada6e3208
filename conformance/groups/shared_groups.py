"""Java and Python members in the same groups, one group for each allocation strategy.

    even-j1 even-p1          start together
    odd-j2, then odd-p2      join
    even-j1, then even-p1    leave

After each step every queue must have one reader, as the members themselves report, and each group must get each message once. The
strategy by configuration assigns fixed queues to each member; machine rooms are in the names of brokers and members.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Final

from conformance import apache
from conformance.apache import ApacheBroker
from conformance.groups.java_member import JavaMember
from conformance.programs import OurServer
from conformance.python.against import OURS
from conformance.python.stage import Stage, Traits
from conformance.report import Scenario, Trial
from pocketmq.client import AsyncPushConsumer
from pocketmq.client.consumer.allocation import (
    AVERAGE,
    Circle,
    Configured,
    ConsistentHash,
    MachineRoom,
    MachineRoomNearby,
)
from pocketmq.model.message import StoredMessage
from pocketmq.model.queue import MessageQueue

JAVA: Final = "5.3.3"
COLUMNS: Final = (OURS, JAVA)
STRATEGIES: Final = {
    "AVG": "average",
    "AVG_BY_CIRCLE": "circle",
    "CONFIG": "by configuration",
    "MACHINE_ROOM": "machine room",
    "MACHINE_ROOM_NEARBY": "nearby machine room",
    "CONSISTENT_HASH": "consistent hash",
}
QUEUES: Final = 8
TOPIC: Final = "MixedTopic"
BROKER: Final = "room@broker-a"
SETTLE_S: Final = 90
"""A member that missed a notice looks again after 20 s."""
LOOK_S: Final = 0.2
STEADY_LOOKS: Final = 15
"""A Java member says which queues it has after it has begun to read them; on a busy machine another one still reads them then."""
STEPS: Final = (
    "a Java and a Python member start",
    "a Java member joins",
    "a Python member joins",
    "the first Java member leaves",
    "the first Python member leaves",
)


class PythonMember:
    """The same as `JavaMember`, by our client."""

    def __init__(self, stage: Stage, name: str, own: Sequence[int]) -> None:
        self.name = name
        self.own = frozenset(own)
        self.got: list[tuple[str, str]] = []
        self._consumers: dict[str, AsyncPushConsumer] = {}
        for strategy in STRATEGIES:
            consumer = stage.push(
                f"CG_mixed_{strategy}", instance_name=name, persist_ms=500, allocation=_strategy(strategy, own)
            )
            consumer.on(TOPIC)(self._listener(strategy))
            self._consumers[strategy] = consumer

    def _listener(self, strategy: str) -> Callable[[StoredMessage], Any]:
        async def listen(message: StoredMessage) -> None:
            self.got.append((strategy, message.body.decode()))

        return listen

    async def start(self) -> None:
        for consumer in self._consumers.values():
            await consumer.start()

    async def share(self, strategy: str) -> frozenset[int]:
        queues = await self._consumers[strategy].queues()
        return frozenset(queue.queue_id for queue in queues if queue.topic == TOPIC)

    async def leave(self) -> None:
        for consumer in self._consumers.values():
            await consumer.stop()


def _strategy(name: str, own: Sequence[int]) -> Any:
    return {
        "AVG": AVERAGE,
        "AVG_BY_CIRCLE": Circle(),
        "CONSISTENT_HASH": ConsistentHash(),
        "CONFIG": Configured(MessageQueue(TOPIC, BROKER, number) for number in own),
        "MACHINE_ROOM": MachineRoom({"room"}),
        "MACHINE_ROOM_NEARBY": MachineRoomNearby(
            AVERAGE,
            lambda queue: "even" if queue.queue_id % 2 == 0 else "odd",
            lambda client: "even" if "even" in client else "odd",
        ),
    }[name]


class Story:
    """All steps with one broker."""

    def __init__(self, trial: Trial, name_server: str) -> None:
        self._trial = trial
        self._stage = Stage(name_server, Traits())
        self._members: list[JavaMember | PythonMember] = []
        self._everybody: list[JavaMember | PythonMember] = []
        self._flaws: dict[str, list[str]] = {strategy: [] for strategy in STRATEGIES}

    async def tell(self) -> None:
        async with self._stage.admin() as admin:
            await admin.topics.create(TOPIC, queues=QUEUES)
        try:
            await self._step(0, self._java("even-j1", (0, 4)), self._python("even-p1", (1, 5)))
            await self._step(1, self._java("odd-j2", (2, 6)))
            await self._step(2, self._python("odd-p2", (3, 7)))
            await self._step(3, leaves="even-j1")
            await self._step(4, leaves="even-p1")
        finally:
            for member in self._everybody:
                await self._leave(member)
        for strategy, name in STRATEGIES.items():
            self._trial.expect(_check(name), self._flaws[strategy])

    def _java(self, name: str, own: Sequence[int]) -> JavaMember:
        return JavaMember(JAVA, self._stage.name_server, TOPIC, name, BROKER, own, list(STRATEGIES))

    def _python(self, name: str, own: Sequence[int]) -> PythonMember:
        return PythonMember(self._stage, name, own)

    async def _step(self, number: int, *joining: JavaMember | PythonMember, leaves: str = "") -> None:
        self._trial.say(STEPS[number])
        for member in joining:
            self._members.append(member)
            self._everybody.append(member)
            if isinstance(member, PythonMember):
                await member.start()
        for member in [member for member in self._members if member.name == leaves]:
            self._members.remove(member)
            await self._leave(member)
        await asyncio.gather(*(self._settled(STEPS[number], strategy) for strategy in STRATEGIES))
        await self._sent(number)

    async def _leave(self, member: JavaMember | PythonMember) -> None:
        if isinstance(member, PythonMember):
            await member.leave()
        else:
            await asyncio.to_thread(member.leave)

    async def _settled(self, step: str, strategy: str) -> None:
        """Wait until every queue that should be assigned has exactly one reader. A timeout is recorded as a flaw."""
        wanted = Counter(range(QUEUES))
        if strategy == "CONFIG":
            wanted = Counter(number for member in self._members for number in member.own)
        try:
            async with asyncio.timeout(SETTLE_S):
                alike = 0
                while alike < STEADY_LOOKS:
                    await asyncio.sleep(LOOK_S)
                    shares = [await member.share(strategy) for member in self._members]
                    owned = Counter(number for share in shares for number in share)
                    alike = alike + 1 if owned == wanted else 0
        except TimeoutError:
            found = {member.name: sorted(await member.share(strategy)) for member in self._members}
            self._flaws[strategy].append(f"{step}: {found}")

    async def _sent(self, number: int) -> None:
        """Send messages to all queues. Each group gets each message once, because there is no rebalance meanwhile."""
        bodies = []
        async with self._stage.producer(group="PG_mixed") as producer:
            for queue_id in range(QUEUES):
                for turn in range(3):
                    body = f"{number}-{queue_id}-{turn}"
                    await producer.send(TOPIC, body.encode(), queue=MessageQueue(TOPIC, BROKER, queue_id))
                    bodies.append(body)
        for strategy in STRATEGIES:
            own = {one for member in self._members for one in member.own}
            expected = Counter(body for body in bodies if strategy != "CONFIG" or int(body.split("-")[1]) in own)
            await self._came(STEPS[number], strategy, expected, f"{number}-")

    async def _came(self, step: str, strategy: str, expected: Counter[str], prefix: str) -> None:
        found: Counter[str] = Counter()
        try:
            async with asyncio.timeout(SETTLE_S):
                while set(found) < set(expected):
                    await asyncio.sleep(0.1)
                    found = self._got(strategy, prefix)
        except TimeoutError:
            missing = set(expected) - set(found)
            self._flaws[strategy].append(f"{step}: {len(missing)} of {len(expected)} messages did not come")
            return
        await asyncio.sleep(0.3)
        found = self._got(strategy, prefix)
        if twice := [body for body, times in found.items() if times > 1]:
            self._flaws[strategy].append(f"{step}: came twice: {sorted(twice)}")

    def _got(self, strategy: str, prefix: str) -> Counter[str]:
        return Counter(
            body
            for member in self._everybody
            for name, body in list(member.got)
            if name == strategy and body.startswith(prefix)
        )


def _check(name: str) -> str:
    return f"{name}: every queue has one reader, every message is delivered once, while members join and leave"


def _run(trial: Trial) -> None:
    with ExitStack() as running:
        if trial.version == OURS:
            server = running.enter_context(OurServer.name_server_alone(trial.say, trial.folder / "nameserver"))
            name_server = server.name_server
            running.enter_context(OurServer.broker(trial.say, trial.folder / "broker", BROKER, name_server))
        else:
            settings = {"brokerName": BROKER}
            name_server = running.enter_context(
                ApacheBroker(trial.version, trial.folder, settings, trial.say)
            ).name_server
        asyncio.run(Story(trial, name_server).tell())


def unable(column: str) -> str:
    """Java members are needed in any case."""
    return apache.unable(JAVA)


SCENARIOS: Final = (Scenario("Java and Python members", [_check(name) for name in STRATEGIES.values()], _run),)
