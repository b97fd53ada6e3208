"""The walk: every step of the way in its order, each told as soon as it is known.

    address ─ name server ─ route ─ broker ─ permission ─┬─ topic ─ group ─ subscription ─ owner ─ pull ─ handler
                                                         │            └──── offset ─ retention
                                                         └─ disk, clock, flush, tls, accounts

What is broken is named once. A step behind it is not looked at where it could see nothing; where it can, what is wrong there may
follow from what is broken before, and is a note to a step that is unknown: a group that nobody is in reads nothing, so that its
messages grow old. Nothing is changed anywhere: no message is sent, no group joined, no offset written.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, Unpack

from pocketmq.client.cluster.instance import Surroundings
from pocketmq.client.lifecycle import SHARED
from pocketmq.client.settings import settings_of
from pocketmq.doctor.machines import look_at_accounts, look_at_clocks, look_at_disk, look_at_flush, look_at_tls
from pocketmq.doctor.members import (
    look_at_group,
    look_at_handlers,
    look_at_offsets,
    look_at_owners,
    look_at_pulls,
    look_at_retention,
    look_at_subscription,
)
from pocketmq.doctor.reaching import look_at_address, look_at_brokers, look_at_name_servers, look_at_route
from pocketmq.doctor.report import WAY, Finding, Report, Step, Verdict, not_looked_at, unknown
from pocketmq.doctor.rights import look_at_permission, look_at_topic
from pocketmq.doctor.visit import DoctorOptions, DoctorSettings, Visit
from pocketmq.errors import PocketMQError
from pocketmq.model.human import duration
from pocketmq.model.names import parse_group, parse_topic, wrap
from pocketmq.net.portal import refuse_in_a_loop

OnStep = Callable[[Step], None]


class Look(NamedTuple):
    """A step: how it is looked at, what must not be broken before it, and what may be why it is not well."""

    name: str
    needs: tuple[str, ...]
    at: Callable[[Visit], Awaitable[Finding]]
    follows: tuple[str, ...] = ()


READING: Final = ("subscription", "owner", "pull", "handler")
"""Steps that keep a group from reading on."""
LOOKS: Final = (
    Look("address", (), look_at_address),
    Look("name server", ("address",), look_at_name_servers),
    Look("route", ("name server",), look_at_route),
    Look("broker", ("route",), look_at_brokers),
    Look("permission", ("name server",), look_at_permission),
    Look("topic", ("broker", "permission"), look_at_topic),
    Look("group", ("broker", "permission"), look_at_group, ("topic",)),
    Look("subscription", ("group",), look_at_subscription, ("topic",)),
    Look("owner", ("topic", "subscription"), look_at_owners),
    Look("pull", ("owner",), look_at_pulls),
    Look("handler", ("owner",), look_at_handlers),
    Look("offset", ("topic", "permission"), look_at_offsets, ("group",)),
    Look("retention", ("broker", "permission"), look_at_retention, ("group", *READING, "offset")),
    Look("disk", ("broker", "permission"), look_at_disk),
    Look("clock", ("broker", "permission"), look_at_clocks),
    Look("flush", ("broker", "permission"), look_at_flush),
    Look("tls", ("broker", "permission"), look_at_tls),
    Look("accounts", ("broker", "permission"), look_at_accounts),
)
STEP_NAMES: Final = tuple(look.name for look in LOOKS)


async def walk(
    name_servers: str | Sequence[str] | None = None,
    *,
    topic: str | None = None,
    group: str | None = None,
    surroundings: Surroundings | None = None,
    **options: Unpack[DoctorOptions],
) -> AsyncGenerator[Step, None]:
    """The steps, one by one, as they are looked at. Close it (`aclosing`) when you do not want all of them.

    InvalidName for a topic or group that nobody can have.
    """
    settings = settings_of(DoctorSettings, name_servers, options)
    if topic is not None:
        parse_topic(wrap(settings.namespace, topic))
    if group is not None:
        parse_group(wrap(settings.namespace, group))
    visit = Visit(settings, surroundings or Surroundings(), topic, group)
    stopped_by: dict[str, str] = {}
    try:
        for look in LOOKS:
            finding = await _look(visit, look, stopped_by)
            if finding.verdict is Verdict.BROKEN:
                finding = _named_once(look, finding, stopped_by)
            elif finding.verdict is Verdict.UNKNOWN and look.name in WAY:
                stopped_by[look.name] = f"{look.name} is {finding.verdict}"
            yield Step(look.name, finding)
    finally:
        await visit.leave()


async def async_examine(
    name_servers: str | Sequence[str] | None = None,
    *,
    topic: str | None = None,
    group: str | None = None,
    on_step: OnStep = lambda _: None,
    surroundings: Surroundings | None = None,
    **options: Unpack[DoctorOptions],
) -> Report:
    """Walk the whole way, and tell what was found. `on_step` hears of each step at once."""
    surroundings = surroundings or Surroundings()
    steps: list[Step] = []
    async with aclosing(walk(name_servers, topic=topic, group=group, surroundings=surroundings, **options)) as taken:
        async for step in taken:
            steps.append(step)
            on_step(step)
    shown = name_servers if isinstance(name_servers, str) else ";".join(name_servers or ())
    return Report(name_servers=shown, topic=topic, group=group, at_ms=surroundings.clock.now_ms(), steps=tuple(steps))


def examine(
    name_servers: str | Sequence[str] | None = None,
    *,
    topic: str | None = None,
    group: str | None = None,
    on_step: OnStep = lambda _: None,
    **options: Unpack[DoctorOptions],
) -> Report:
    """The same for code that does not await. `on_step` is called by another thread, while this one waits."""
    refuse_in_a_loop()
    portal = SHARED.borrow()
    try:
        return portal.run(async_examine(name_servers, topic=topic, group=group, on_step=on_step, **options))
    finally:
        SHARED.give_back()


async def _look(visit: Visit, look: Look, stopped_by: dict[str, str]) -> Finding:
    """What is found, whatever happens: a question that fails leaves its step unknown, with the reason.

    `stopped_by` says, of each step that is broken or behind one that is, which that is.
    """
    for need in look.needs:
        if cause := stopped_by.get(need):
            stopped_by[look.name] = cause
            return not_looked_at(cause)
    limit_ms = visit.settings.step_timeout_ms
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await look.at(visit)
    except TimeoutError:
        return unknown(f"it could not be found out within {duration(limit_ms)}")
    except PocketMQError as error:
        return unknown(f"{type(error).__name__}: {error}".partition("\n")[0].rstrip("."))


def _named_once(look: Look, finding: Finding, stopped_by: dict[str, str]) -> Finding:
    """What is broken, as itself, or as a note where it may follow from something that was named before."""
    cause = next((stopped_by[step] for step in look.follows if step in stopped_by), None)
    stopped_by[look.name] = cause or f"{look.name} is {finding.verdict}"
    return finding if cause is None else unknown(cause, finding.text, *finding.notes)
