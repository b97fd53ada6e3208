"""The identity of this process in a cluster: its address, its client ids, and the ids of its messages.

    client id    ip@pid#start[#n][@unit][@STREAM]    as in Java: identifies group members and owners of queue locks
    unique id    see `model.message_id`              the id of a message, assigned before it is sent

Brokers distinguish the members of a group by client id. So two clients of a process with separate connections have different ids: the
second gets `#2`. Clients have separate connections on different event loops, and with different name servers, credentials or TLS.

A forked child must not use the ids of its parent. It gets a new pid in its ids and a new `generation`, by which a client detects that
it was created before the fork.
"""

import asyncio
import os
import random
import threading
from itertools import count

from pocketmq import system
from pocketmq.client.settings import DEFAULT_INSTANCE, ClientSettings
from pocketmq.clock import SystemClock
from pocketmq.errors import WrongState
from pocketmq.model import UniqueIds, pack_ip
from pocketmq.net import Address, reachable

STREAM_MARK = "@STREAM"
_EVERYWHERE = Address("0.0.0.0", 0)  # noqa: S104 nothing is bound


class _Process:
    """The state of this process until it forks."""

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.instance_name = f"{os.getpid()}#{SystemClock().now_ms()}"
        self.ids: dict[str, UniqueIds] = {}
        self.clients: dict[str, asyncio.AbstractEventLoop] = {}
        """Client ids in use, with the event loop of each client."""
        self.lock = threading.Lock()  # guards `clients`, which loops in several threads use; the innermost lock
        self.ip: str | None = None


_process = _Process(0)


def generation() -> int:
    """The number of forks since PocketMQ was imported first."""
    return _process.generation


def require_same_process(made_in: int, what: str) -> None:
    """WrongState when `what` was created before a fork, in a parent process."""
    if made_in != _process.generation:
        raise WrongState(
            f"this {what} was created before a fork, and its sockets and event loop belong to the parent process: "
            "create a new one in the child"
        )


def require_same_loop(running: asyncio.AbstractEventLoop, loop: asyncio.AbstractEventLoop, what: str) -> None:
    """WrongState when `what` belongs to another loop than the running one, where its caller would never wake up."""
    if running is not loop:
        raise WrongState(
            f"this {what} was started on another event loop, which owns its connections: use it there, create a new one on "
            "this loop, or share the blocking class between loops and threads"
        )


def reserve_client_id(settings: ClientSettings, loop: asyncio.AbstractEventLoop, *, stream: bool = False) -> str:
    """Reserve a client id that is unique in this process, until `release_client_id` or until the loop is closed."""
    with _process.lock:
        for number in count(1):
            reserved = client_id(settings, stream=stream, number=number)
            owner = _process.clients.get(reserved)
            if owner is None or owner.is_closed():
                break
        _process.clients[reserved] = loop
    return reserved


def release_client_id(reserved: str) -> None:
    """Release a client id."""
    with _process.lock:
        _process.clients.pop(reserved, None)


def client_id(settings: ClientSettings, *, stream: bool = False, number: int = 1) -> str:
    """The client id for these settings. `stream` is for clients whose users poll, such as pull consumers.

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
    """The address in ids: `client_ip` of the settings, else the address of the default network interface."""
    if settings.client_ip is not None:
        return settings.client_ip
    if _process.ip is None:
        _process.ip = reachable(_EVERYWHERE).host
    return _process.ip


def unique_ids(ip: str) -> UniqueIds:
    """The generator of message ids that all clients of this process with this address share."""
    ids = _process.ids.get(ip)
    if ids is None:
        salt = random.SystemRandom().getrandbits(32)
        ids = _process.ids[ip] = UniqueIds(pack_ip(ip), os.getpid(), salt)
    return ids


def _after_fork() -> None:
    global _process
    ip, _process = _process.ip, _Process(_process.generation + 1)
    _process.ip = ip


system.after_fork_in_child(_after_fork)
