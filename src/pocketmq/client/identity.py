"""Who this process is to a cluster: its address, its client id, and the ids of its messages.

    client id    ip@pid#start[@unit][@STREAM]        as Java's: who is in a group, who holds a lock
    unique id    see `model.message_id`              the id of a message, from before it is sent

After a fork parent and child would be one and the same to every broker. So the child begins anew: another pid in its ids, another
`generation`, by which a client notices that it was made by somebody else.
"""

import asyncio
import os
import random

from pocketmq.client.settings import DEFAULT_INSTANCE, ClientSettings
from pocketmq.clock import SystemClock
from pocketmq.errors import WrongState
from pocketmq.model.message_id import UniqueIds, pack_ip
from pocketmq.net.address import Address
from pocketmq.net.own_host import reachable

STREAM_MARK = "@STREAM"
_EVERYWHERE = Address("0.0.0.0", 0)  # noqa: S104 nothing is bound


class _Process:
    """What is true of this process until it forks."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.instance_name = f"{os.getpid()}#{SystemClock().now_ms()}"
        self.ids: dict[str, UniqueIds] = {}
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


def client_id(settings: ClientSettings, *, stream: bool = False) -> str:
    """The name under which brokers know a client with these settings. `stream` is for clients that poll by themselves."""
    name = settings.instance_name
    if name == DEFAULT_INSTANCE and not settings.keeps_default_name:
        name = _process.instance_name + settings.instance_mark
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
