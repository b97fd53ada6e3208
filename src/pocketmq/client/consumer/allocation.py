"""Allocation: which queues of a topic each member of a group reads.

    queues sorted, members sorted ──► strategy(queues, members, me) ──► my queues

Nobody hands the queues out: every member computes the same split from the same two lists and takes its own part. So a
strategy must give what Java gives, to the last queue, or a group with members of both kinds reads some queues twice and
others never. Sorted means as Java sorts: names by UTF-16 unit, queue ids as numbers.

    AVG                     aaabbbcc    neighbours together, the first members one more
    AVG_BY_CIRCLE           abcabcab    one after the other
    CONSISTENT_HASH         acabbbbc    by a ring: few queues move when a member comes or goes; not balanced
    CONFIG                              the ones that the user named
    MACHINE_ROOM            ---aaabbb   only brokers called `room@name` of some rooms
    MACHINE_ROOM_NEARBY-x               each room's queues to its own members by x; those of rooms without members to all

A strategy of the user's is any callable with a name. All members of a group must use the same.
"""

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache
from hashlib import md5
from typing import Final, Protocol

from pocketmq.errors import InvalidSetting, UsageError
from pocketmq.model.names import room_of_broker
from pocketmq.model.queue import MessageQueue, java_sorted

VIRTUAL_NODES: Final = 10
"""Places on the ring that each member has."""
NEARBY_PREFIX: Final = "MACHINE_ROOM_NEARBY-"

Hash = Callable[[str], int]


class AllocationStrategy(Protocol):
    """How queues are shared out. `name` is what an error, a log or an administrator reads."""

    @property
    def name(self) -> str: ...

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        """The part of member `me`. Both lists are sorted, hold nothing twice, and are not empty; `me` is a member."""


def allocate(
    strategy: AllocationStrategy, queues: Iterable[MessageQueue], members: Iterable[str], me: str
) -> list[MessageQueue]:
    """The queues of member `me`, sorted; none when the group does not know it (yet).

    UsageError when the strategy gives a queue that does not exist, or one twice: reading on with that could lose messages.
    """
    all_queues = sort_queues(queues)
    all_members = java_sorted(list(set(members)))
    if not all_queues or me not in all_members:
        return []
    mine = strategy(all_queues, all_members, me)
    given = set(mine)
    if len(given) != len(mine) or not given <= set(all_queues):
        strange = sorted(map(str, given.difference(all_queues)))
        fault = f"queues that do not exist: {', '.join(strange)}" if strange else "some queue twice"
        raise UsageError(
            f"allocation strategy {strategy.name} gave {fault}; it may choose from the queues that it is shown"
        )
    return sort_queues(given)


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Each queue once, in Java's order."""
    return sorted(set(queues), key=_java_order)


def _java_order(queue: MessageQueue) -> tuple[bytes, bytes, int]:
    return _units(queue.topic), _units(queue.broker_name), queue.queue_id


def _units(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")


class Average:
    """Runs of neighbours. With fewer queues than members, the last members get none."""

    name = "AVG"

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        size, larger = divmod(len(queues), len(members))
        position = members.index(me)
        start = position * size + min(position, larger)
        return queues[start : start + size + (position < larger)]


class Circle:
    """Dealt out like cards."""

    name = "AVG_BY_CIRCLE"

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        return queues[members.index(me) :: len(members)]


class ConsistentHash:
    """A queue belongs to the member whose next place on the ring comes after it.

    `hashing` gives a text its place; all members must use the same, and Java's is the default.
    """

    name = "CONSISTENT_HASH"

    def __init__(self, virtual_nodes: int = VIRTUAL_NODES, hashing: Hash | None = None) -> None:
        if virtual_nodes < 1:
            raise InvalidSetting(f"{virtual_nodes} virtual nodes leave the ring empty; give at least 1")
        self._virtual_nodes = virtual_nodes
        self._hashing = hashing or _md5_start

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        places, owners = _ring(tuple(members), self._virtual_nodes, self._hashing)
        hashing = self._hashing
        return [
            queue for queue in queues if owners[bisect_left(places, hashing(queue.java_text())) % len(places)] == me
        ]


def _md5_start(text: str) -> int:
    """The first four bytes of the MD5 sum."""
    return int.from_bytes(md5(text.encode("utf-8", "replace"), usedforsecurity=False).digest()[:4], "big")


@lru_cache(maxsize=16)
def _ring(members: tuple[str, ...], virtual_nodes: int, hashing: Hash) -> tuple[list[int], list[str]]:
    """Places in order, and whose they are. Kept, because every topic of a group asks for the same ring at each rebalance."""
    ring = {hashing(f"{member}-{node}"): member for member in members for node in range(virtual_nodes)}
    places = sorted(ring)
    return places, [ring[place] for place in places]


class Configured:
    """The queues that the user named; of those, the ones that exist."""

    name = "CONFIG"

    def __init__(self, queues: Iterable[MessageQueue]) -> None:
        self._queues = frozenset(queues)

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        return [queue for queue in queues if queue in self._queues]


class MachineRoom:
    """Queues of brokers in the given rooms, in even runs; the rest one by one from the end. Other brokers are read by nobody."""

    name = "MACHINE_ROOM"

    def __init__(self, rooms: Collection[str]) -> None:
        if isinstance(rooms, str) or not rooms:
            raise InvalidSetting(f"MACHINE_ROOM needs the rooms to read from, such as {{'hz', 'sh'}}, not {rooms!r}")
        self._rooms = frozenset(rooms)

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        inside = [queue for queue in queues if room_of_broker(queue.broker_name) in self._rooms]
        size, left_over = divmod(len(inside), len(members))
        position = members.index(me)
        mine = inside[position * size : (position + 1) * size]
        if position < left_over:
            mine.append(inside[size * len(members) + position])
        return mine


class MachineRoomNearby:
    """Another strategy, applied room by room. `queue_room` and `member_room` say where a queue's broker and a member are."""

    def __init__(
        self,
        inner: AllocationStrategy,
        queue_room: Callable[[MessageQueue], str],
        member_room: Callable[[str], str],
    ) -> None:
        self._inner = inner
        self._queue_room = queue_room
        self._member_room = member_room

    @property
    def name(self) -> str:
        return NEARBY_PREFIX + self._inner.name

    def __call__(self, queues: Sequence[MessageQueue], members: Sequence[str], me: str) -> Sequence[MessageQueue]:
        members_in: dict[str, list[str]] = {}
        for member in members:
            members_in.setdefault(self._room(member, self._member_room(member)), []).append(member)
        queues_in: dict[str, list[MessageQueue]] = {}
        for queue in queues:
            queues_in.setdefault(self._room(queue, self._queue_room(queue)), []).append(queue)
        mine: list[MessageQueue] = []
        for room, found in queues_in.items():
            sharing = members_in.get(room, members)
            if me in sharing:
                mine.extend(self._inner(found, sharing, me))
        return mine

    def _room(self, what: MessageQueue | str, room: str) -> str:
        if not room:
            raise UsageError(f"{self.name}: no machine room is known for {what}; the functions must name one for each")
        return room


AVERAGE: Final = Average()
"""What a consumer uses when told nothing."""
_PLAIN: Final[dict[str, Callable[[], AllocationStrategy]]] = {
    Average.name: Average,
    Circle.name: Circle,
    ConsistentHash.name: ConsistentHash,
}


def strategy_named(
    name: str,
    *,
    queues: Iterable[MessageQueue] | None = None,
    rooms: Collection[str] | None = None,
    queue_room: Callable[[MessageQueue], str] | None = None,
    member_room: Callable[[str], str] | None = None,
) -> AllocationStrategy:
    """The strategy that RocketMQ calls `name`. What it needs besides has to be given, or InvalidSetting says so."""
    if name in _PLAIN:
        return _PLAIN[name]()
    if name == Configured.name and queues is not None:
        return Configured(queues)
    if name == MachineRoom.name and rooms is not None:
        return MachineRoom(rooms)
    if name.startswith(NEARBY_PREFIX) and queue_room and member_room:
        return MachineRoomNearby(strategy_named(name.removeprefix(NEARBY_PREFIX)), queue_room, member_room)
    raise InvalidSetting(
        f"allocation strategy {name!r} is unknown or lacks something. There are {', '.join(_PLAIN)}, "
        f"{Configured.name} (with queues), {MachineRoom.name} (with rooms) and {NEARBY_PREFIX}x (with queue_room and "
        f"member_room)"
    )
