"""Allocation strategies: which queues of a topic each member of a group consumes.

    sorted queues, sorted members ──► strategy(queues, members, me) ──► my queues

No server allocates queues: every member computes the same allocation from the same two lists, and takes its own part. So a strategy must
return exactly what Java returns. Otherwise members of a mixed group would consume some queues twice, and others never. The order is that of
Java: names by UTF-16 unit, queue ids as numbers.

    AVG                     aaabbbcc    neighbours together; the first members get one more
    AVG_BY_CIRCLE           abcabcab    one after the other
    CONSISTENT_HASH         acabbbbc    by a hash ring: few queues move when a member joins or leaves; not balanced
    CONFIG                              the configured queues
    MACHINE_ROOM            ---aaabbb   only brokers called `room@name` of certain machine rooms
    MACHINE_ROOM_NEARBY-x               the queues of each machine room to its own members by x, or to all

A user's strategy is any callable with a name. All members of a group must use the same strategy.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Final, Protocol

from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.model import MessageQueue
from pocketmq.model.names import machine_room_of_broker
from pocketmq.model.queue import java_sorted

VIRTUAL_NODES: Final = 10
"""The number of positions of each member on the hash ring."""
NEARBY_PREFIX: Final = "MACHINE_ROOM_NEARBY-"

Hash = Callable[[str], int]


class AllocationStrategy(Protocol):
    """Allocates queues. `name` appears in errors, logs and the consumer's running info."""

    @property
    def name(self) -> str: ...

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        """The queues of member `me`. Both lists are sorted, without duplicates and not empty; `me` is a member."""


def allocate(
    strategy: AllocationStrategy, queues: Iterable[MessageQueue], members: Iterable[str], me: str
) -> list[MessageQueue]:
    """The queues of member `me`, sorted; none if the group does not know the member (yet).

    Raises UsageError if the strategy returns an unknown queue, or one twice: messages could be lost.
    """
    all_queues = sort_queues(queues)
    all_members = java_sorted(list(set(members)))
    if not all_queues or me not in all_members:
        return []
    mine = strategy(all_queues, all_members, me)
    found = set(mine)
    if len(found) != len(mine) or not found <= set(all_queues):
        strange = sorted(map(str, found.difference(all_queues)))
        fault = f"queues that do not exist: {', '.join(strange)}" if strange else "a queue twice"
        raise UsageError(f"allocation strategy {strategy.name} returned {fault}; expected only queues of its argument")
    return sort_queues(found)


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Each queue once, in Java's order."""
    return sorted(set(queues), key=_java_order)


def _java_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return _units(queue.topic), _units(queue.broker_name), queue.queue_id


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


class Average:
    """Neighbours together. With fewer queues than members, the last members get none."""

    name = "AVG"

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        size, larger = divmod(len(queues), len(members))
        position = members.index(me)
        start = position * size + min(position, larger)
        return queues[start : start + size + (position < larger)]


class Circle:
    """One queue to each member in turn."""

    name = "AVG_BY_CIRCLE"

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        return queues[members.index(me) :: len(members)]


class ConsistentHash:
    """A queue belongs to the member with the next position on the ring.

    `hashing` computes positions. All members must use the same; the default is that of Java.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES, hashing: Hash | None = None) -> None:
        if virtual_nodes < 1:
            raise InvalidSetting(f"virtual_nodes = {virtual_nodes} must be at least 1")
        self._virtual_nodes = virtual_nodes
        self._hashing = hashing or _md5_start

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        positions, owners = _ring(tuple(members), self._virtual_nodes, self._hashing)
        count, hashing = len(positions), self._hashing
        return [queue for queue in queues if owners[bisect_left(positions, hashing(queue.java_text())) % count] == me]


def _md5_start(text: str) -> int:
    """The first four bytes of the MD5 sum."""
    return int.from_bytes(md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


@lru_cache(maxsize=16)
def _ring(members: tuple[str, ...], virtual_nodes: int, hashing: Hash) -> tuple[list[int], list[str]]:
    """Sorted positions and their members. Cached: all topics of a group use the same ring at each rebalance."""
    ring = {hashing(f"{member}-{node}"): member for member in members for node in range(virtual_nodes)}
    positions = sorted(ring)
    return positions, [ring[position] for position in positions]


class Configured:
    """The configured queues that exist."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = frozenset(queues)

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        return [queue for queue in queues if queue in self._queues]


class MachineRoom:
    """Queues of brokers in the given machine rooms, the same number to each member, then one more from the end. Ignores other brokers."""

    name = "MACHINE_ROOM"

    def __init__(self, machine_rooms: Collection[str]) -> None:
        if isinstance(machine_rooms, str) or not machine_rooms:
            raise InvalidSetting(
                f"MACHINE_ROOM requires a set of machine rooms, such as {{'hz', 'sh'}}, not {machine_rooms!r}"
            )
        self._machine_rooms = frozenset(machine_rooms)

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        inside = [queue for queue in queues if machine_room_of_broker(queue.broker_name) in self._machine_rooms]
        size, left_over = divmod(len(inside), len(members))
        position = members.index(me)
        mine = inside[position * size : (position + 1) * size]
        if position < left_over:
            mine.append(inside[size * len(members) + position])
        return mine


class MachineRoomNearby:
    """Another strategy, applied to each machine room. The functions return the machine room of a queue's broker and of a member."""

    def __init__(
        self,
        inner: AllocationStrategy,
        machine_room_of_queue: Callable[[MessageQueue], str],
        machine_room_of_member: Callable[[str], str],
    ) -> None:
        self._inner = inner
        self._machine_room_of_queue = machine_room_of_queue
        self._machine_room_of_member = machine_room_of_member

    @property
    def name(self) -> str:
        return NEARBY_PREFIX + self._inner.name

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        members_in: dict[str, list[str]] = {}
        for member in members:
            members_in.setdefault(self._checked(member, self._machine_room_of_member(member)), []).append(member)
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_in.setdefault(self._checked(queue, self._machine_room_of_queue(queue)), []).append(queue)
        mine: list[MessageQueue] = []
        for machine_room, found in queues_in.items():
            candidates = members_in.get(machine_room, members)
            if me in candidates:
                mine.extend(self._inner(found, candidates, me))
        return mine

    def _checked(self, what: MessageQueue | str, machine_room: str) -> str:
        if not machine_room:
            raise UsageError(f"{self.name}: no machine room for {what}; the functions must return one for each")
        return machine_room


AVERAGE: Final = Average()
"""The default of consumers."""
_PLAIN: Final[dict[str, Callable[[], AllocationStrategy]]] = {
    Average.name: Average,
    Circle.name: Circle,
    ConsistentHash.name: ConsistentHash,
}


def strategy_named(
    name: str,
    *,
    queues: Iterable[MessageQueue] | None = None,
    machine_rooms: Collection[str] | None = None,
    machine_room_of_queue: Callable[[MessageQueue], str] | None = None,
    machine_room_of_member: Callable[[str], str] | None = None,
) -> AllocationStrategy:
    """The strategy of RocketMQ with this name. Raises InvalidSetting if it is unknown, or an argument is missing."""
    if name in _PLAIN:
        return _PLAIN[name]()
    if name == Configured.name and queues is not None:
        return Configured(queues)
    if name == MachineRoom.name and machine_rooms is not None:
        return MachineRoom(machine_rooms)
    if name.startswith(NEARBY_PREFIX) and machine_room_of_queue and machine_room_of_member:
        return MachineRoomNearby(
            strategy_named(name.removeprefix(NEARBY_PREFIX)), machine_room_of_queue, machine_room_of_member
        )
    raise InvalidSetting(
        f"allocation strategy {name!r} is unknown or lacks an argument. Known are {', '.join(_PLAIN)}, and by "
        f"allocation=strategy_named(name, …) {Configured.name} (with queues), {MachineRoom.name} (with machine_rooms) and "
        f"{NEARBY_PREFIX}x (with machine_room_of_queue and machine_room_of_member)"
    )
