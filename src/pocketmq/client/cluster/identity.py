"""Who this process is to a cluster: its address, its client id, and the ids of its messages.

    client id    ip@pid#start[#n][@unit][@STREAM]    as Java's: who is in a group, who holds a lock
    unique id    see `model.message_id`              the id of a message, from before it is sent

Brokers tell the members of a group apart by client id, so no two clients of a process that have connections of their own have the same
one: the second gets `#2`. That happens on another event loop, and with other name servers, credentials or TLS.

After a fork parent and child would be one and the same to every broker. So the child begins anew: another pid in its ids, another
`generation`, by which a client notices that it was made by somebody else.
"""

import asyncio
import os
import random
import threading
from itertools import count

from pocketmq.client.settings import DEFAULT_INSTANCE, ClientSettings
from pocketmq.clock import SystemClock
from pocketmq.errors import WrongState
from pocketmq.model.message_id import UniqueIds, pack_ip
from pocketmq.net.address import Address, reachable

STREAM_MARK = "@STREAM"
_EVERYWHERE = Address("0.0.0.0", 0)  # noqa: S104 nothing is bound


class _Process:
    """What is true of this process until it forks."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.instance_name = f"{os.getpid()}#{SystemClock().now_ms()}"
        self.ids: dict[str, UniqueIds] = {}
        self.clients: dict[str, asyncio.AbstractEventLoop] = {}
        """Client ids in use, each with the loop of its client."""
        self.lock = (
            threading.Lock()
        )  # guards `clients`: loops run in different threads; no other lock is taken under it
        self.ip: str | None = None


_process = _Process(0)


def generation() -> int:
    """How many forks lie between this process and the one that imported PocketMQ first."""
    return _process.generation


def require_same_process(made_in: int, what: str) -> None:
    """WrongState when `what` was made before a fork, in another process than this one."""
    if made_in != _process.generation:
        raise WrongState(
            f"this {what} was made before a fork and belongs to the parent process, with its sockets and its event loop: "
            "make a new one in the child"
        )


def require_same_loop(running: asyncio.AbstractEventLoop, loop: asyncio.AbstractEventLoop, what: str) -> None:
    """WrongState when `what` lives on another loop than the one that runs: nothing would ever wake its caller."""
    if running is not loop:
        raise WrongState(
            f"this {what} was started on another event loop, where its connections live: use it there, make a new one on "
            "this loop, or share the blocking class between loops and threads"
        )


def take_client_id(settings: ClientSettings, loop: asyncio.AbstractEventLoop, *, stream: bool = False) -> str:
    """A client id that no other client of this process has, until `free_client_id`, or until the loop is closed."""
    with _process.lock:
        for number in count(1):
            taken = client_id(settings, stream=stream, number=number)
            owner = _process.clients.get(taken)
            if owner is None or owner.is_closed():
                break
        _process.clients[taken] = loop
    return taken


def free_client_id(taken: str) -> None:
    """Its client has left."""
    with _process.lock:
        _process.clients.pop(taken, None)


def client_id(settings: ClientSettings, *, stream: bool = False, number: int = 1) -> str:
    """The name under which brokers know a client with these settings. `stream` is for clients that poll by themselves.

    `number` is above 1 for further clients with the same settings.
    """
    name = settings.instance_name
    if name == DEFAULT_INSTANCE and not settings.keeps_default_name:
        name = _process.instance_name + settings.instance_mark
    if number > 1:
        name += f"#{number}"
    unit = f"@{settings.unit_name}" if settings.unit_name else ""
    return f"{client_ip(settings)}@{name}{unit}{STREAM_MARK if stream else ''}"


def client_ip(settings: ClientSettings) -> str:
    """The address that stands in ids: the one that was given, else that of the way out of this machine."""
    if settings.client_ip is not None:
        return settings.client_ip
    if _process.ip is None:
        _process.ip = reachable(_EVERYWHERE).host
    return _process.ip


def unique_ids(ip: str) -> UniqueIds:
    """Where the ids of new messages come from: one source for all clients of this process with this address."""
    ids = _process.ids.get(ip)
    if ids is None:
        salt = random.SystemRandom().getrandbits(32)
        ids = _process.ids[ip] = UniqueIds(pack_ip(ip), os.getpid(), salt)
    return ids


def _begin_anew() -> None:
    global _process
    ip, _process = _process.ip, _Process(_process.generation + 1)
    _process.ip = ip


os.register_at_fork(after_in_child=_begin_anew)
