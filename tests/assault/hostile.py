"""Scenes: frames that a client should not send, with and without accounts."""

import asyncio
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from conformance.broker_line import BrokerLine
from conformance.fuzz.assault import Assault
from tests.assault.stage import TOPIC, Load, Stage

from pocketmq import Credentials
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.model.properties import format_properties
from pocketmq.model.subscription import Subscription
from pocketmq.net.unfinished import TRIM_AFTER_S
from pocketmq.protocol.api.messages import SendMessageV2
from pocketmq.protocol.bodies.clients import ConsumerData, HeartbeatData

MIB: Final = 1024 * 1024
FRAME: Final = 15 * MIB
HOARDERS: Final = 60
LEFT_MB: Final = 60
"""What a server may have grown by for other reasons."""
GARBAGE_S: Final = 6.0
GROUPS: Final = 60_000
"""More than there may be topics for retries."""
GROUPS_PER_LINE: Final = 5_000
"""A broker takes 10,000 from one connection."""
SECRET: Final = "assault-secret"
ACCOUNTS: Final = f"""
[[account]]
access_key = "operator"
secret = "{SECRET}"
admin = true
"""
POISONED: Final = (0x40, 0x80, 0xC0, 0x4, 0x8, 0xC, 0xF0F0)


def _accounts(stage: Stage, signed: bool) -> tuple[tuple[object, ...], dict[str, Any]]:
    """Arguments of the server and options of clients."""
    if not signed:
        return (), {}
    path = stage.folder / "accounts.toml"
    path.write_text(ACCOUNTS)
    path.chmod(0o600)
    return ("--accounts", path), {"credentials": Credentials("operator", SECRET)}


def unfinished_frames(signed: bool, stage: Stage) -> None:
    """Sixty connections announce 15 MiB each and never finish, at the broker and at the name server."""
    args, options = _accounts(stage, signed)
    stage.serve(*args, **options)
    with stage.load():
        before = stage.memory_mb()
        for address in (stage.broker_address, stage.name_server):
            port = int(address.rpartition(":")[2])
            hoarders = [_hoard(port) for _ in range(HOARDERS)]
            stage.during(1)
            for hoarder in hoarders:
                hoarder.close()
        grown = stage.memory_mb() - before
        limit = 120 if signed else 600
        stage.facts.append(f"memory grew by {grown} MB")
        stage.expect(grown < limit, f"memory grew by {grown} MB, which is more than {limit}")
        stage.during(TRIM_AFTER_S + 2)
        left = stage.memory_mb() - before
        stage.expect(left < LEFT_MB, f"{left} MB were not given back")
    stage.stop()


def _hoard(port: int) -> socket.socket:
    hoarder = socket.create_connection(("127.0.0.1", port))
    hoarder.settimeout(5)
    with suppress(OSError):  # the server may close it at any time
        hoarder.sendall(struct.pack(">II", FRAME, 100) + bytes(FRAME - 1_000))
    return hoarder


def garbage(signed: bool, stage: Stage) -> None:
    """Mutated frames, noise and resets for some seconds, at both servers."""
    args, options = _accounts(stage, signed)
    stage.serve(*args, **options)
    with stage.load():
        for address in (stage.broker_address, stage.name_server):
            attack = Assault(int(address.rpartition(":")[2]), stage.seed)
            asyncio.run(attack.run(GARBAGE_S / 2))
            stage.facts.append(f"{sum(attack.sent.values())} frames")
    stage.expect(stage.log_bytes < 20_000_000, f"the log has grown to {stage.log_bytes} bytes")
    stage.server.terminate(15)


def poisoned_flags(stage: Stage) -> None:
    """Sends with flags that a client may not set: no consumer of the queue may miss a message of others for them."""
    stage.serve()
    with stage.load(), BrokerLine(int(stage.broker_address.rpartition(":")[2])) as line:
        codes = []
        for _ in range(20):
            for flag in POISONED:
                header = _send_header(flag)
                body = struct.pack(">iiiii", 30, 0, 0, 0, 2) + b"xx" + bytes(8)
                codes.append(line.call(RequestCode.SEND_MESSAGE_V2, header, body, accepted=range(3_000)).code)
        stage.facts.append(f"{codes.count(ResponseCode.SUCCESS)} of {len(codes)} poisoned sends were accepted")
    stage.stop()


def _send_header(sys_flag: int) -> SendMessageV2:
    return SendMessageV2(
        producer_group="PG_poison",
        topic=TOPIC,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=sys_flag,
        born_timestamp=0,
        flag=0,
        properties=format_properties({"INNER_NUM": "9", "INNER_BASE": "0"}),
    )


def many_groups(stage: Stage) -> None:
    """Heartbeats of very many groups: the broker stays registered, also after a restart."""
    stage.serve()
    taken = 0
    with stage.load():
        for begin in range(0, GROUPS, GROUPS_PER_LINE):
            with BrokerLine(int(stage.broker_address.rpartition(":")[2])) as line:
                for first in range(begin, begin + GROUPS_PER_LINE, 100):
                    members = tuple(_member(f"flood-{number}") for number in range(first, first + 100))
                    heartbeat = HeartbeatData(client_id=f"flood-{first}", consumer_data_set=members)
                    line.call(RequestCode.HEART_BEAT, None, heartbeat.encode())
                    taken += len(members)
    stage.facts.append(f"{taken} groups")
    stage.server.terminate(30)
    stage.start_again()
    with Load(stage.name_server) as load:
        stage.until(lambda: len(load.handled) > 100, "messages after the restart", 60)
    stage.server.terminate(30)


def _member(group: str) -> ConsumerData:
    return ConsumerData(group, subscription_data_set=(Subscription(TOPIC),))


SCENES: Final[dict[str, Callable[[Stage], None]]] = {
    "unfinished frames of 900 MB": partial(unfinished_frames, False),
    "unfinished frames of 900 MB, accounts enabled": partial(unfinished_frames, True),
    "garbage on eight connections": partial(garbage, False),
    "garbage on eight connections, accounts enabled": partial(garbage, True),
    "sends with poisoned flags": poisoned_flags,
    "heartbeats of 60,000 groups": many_groups,
}
