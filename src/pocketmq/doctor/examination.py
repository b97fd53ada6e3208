"""The examination: all steps in their order, each reported as soon as it is done.

    address ─ name server ─ route ─ broker ─ permission ─┬─ topic ─ group ─ subscription ─ owner ─ pull ─ handler
                                                         │            └──── offset ─ retention
                                                         └─ disk, clock, flush, tls, accounts

One cause is reported as broken once. A step that needs a broken step is skipped. A step that can still run may find a problem
which only follows from the broken step: a group without members does not read, so its messages grow old. Such a step is unknown,
and its problem becomes a hint. An examination changes nothing: it sends no message, joins no group and commits no offset.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Final, NamedTuple, Unpack

from pocketmq.client.cluster.instance import Dependencies
from pocketmq.client.lifecycle import SHARED_PORTAL
from pocketmq.client.settings import settings_of
from pocketmq.doctor.broker_checks import check_accounts, check_clocks, check_disk, check_flush, check_tls
from pocketmq.doctor.connection_checks import check_address, check_brokers, check_name_servers, check_route
from pocketmq.doctor.context import DoctorContext, DoctorOptions, DoctorSettings
from pocketmq.doctor.group_checks import (
    check_group,
    check_handlers,
    check_offsets,
    check_owners,
    check_pulls,
    check_retention,
    check_subscription,
)
from pocketmq.doctor.report import REQUIRED_STEPS, Finding, Report, Step, Verdict, skipped, unknown
from pocketmq.doctor.topic_checks import check_permission, check_topic
from pocketmq.errors import PocketMQError
from pocketmq.model.human import duration
from pocketmq.model.names import parse_group, parse_topic, wrap
from pocketmq.net import refuse_in_a_loop

OnStep = Callable[[Step], None]


class Check(NamedTuple):
    """One step of the examination."""

    name: str
    needs: tuple[str, ...]
    """Steps that must not be broken before this one runs."""
    run: Callable[[DoctorContext], Awaitable[Finding]]
    follows: tuple[str, ...] = ()
    """Steps that, if they are broken, explain a problem found by this one."""


READING: Final = ("subscription", "owner", "pull", "handler")
"""Steps that, if they are broken, stop a group from reading."""
CHECKS: Final = (
    Check("address", (), check_address),
    Check("name server", ("address",), check_name_servers),
    Check("route", ("name server",), check_route),
    Check("broker", ("route",), check_brokers),
    Check("permission", ("name server",), check_permission),
    Check("topic", ("broker", "permission"), check_topic),
    Check("group", ("broker", "permission"), check_group, ("topic",)),
    Check("subscription", ("group",), check_subscription, ("topic",)),
    Check("owner", ("topic", "subscription"), check_owners),
    Check("pull", ("owner",), check_pulls),
    Check("handler", ("owner",), check_handlers),
    Check("offset", ("topic", "permission"), check_offsets, ("group",)),
    Check("retention", ("broker", "permission"), check_retention, ("group", *READING, "offset")),
    Check("disk", ("broker", "permission"), check_disk),
    Check("clock", ("broker", "permission"), check_clocks),
    Check("flush", ("broker", "permission"), check_flush),
    Check("tls", ("broker", "permission"), check_tls),
    Check("accounts", ("broker", "permission"), check_accounts),
)
STEP_NAMES: Final = tuple(check.name for check in CHECKS)


async def examine_steps(
    name_servers: str | Sequence[str] | None = None,
    *,
    topic: str | None = None,
    group: str | None = None,
    dependencies: Dependencies | None = None,
    **options: Unpack[DoctorOptions],
) -> AsyncGenerator[Step, None]:
    """Run the steps one by one and yield each when it is done. Use `aclosing` if you may stop before the last one.

    Raises InvalidName if the name of the topic or the group is not allowed.
    """
    settings = settings_of(DoctorSettings, name_servers, options)
    if topic is not None:
        parse_topic(wrap(settings.namespace, topic))
    if group is not None:
        parse_group(wrap(settings.namespace, group))
    context = DoctorContext(settings, dependencies or Dependencies(), topic, group)
    causes: dict[str, str] = {}
    try:
        for check in CHECKS:
            yield Step(check.name, await _run(context, check, causes))
    finally:
        await context.leave()


async def async_examine(
    name_servers: str | Sequence[str] | None = None,
    *,
    topic: str | None = None,
    group: str | None = None,
    on_step: OnStep = lambda _: None,
    dependencies: Dependencies | None = None,
    **options: Unpack[DoctorOptions],
) -> Report:
    """Run all steps and return the report. `on_step` is called after each step."""
    dependencies = dependencies or Dependencies()
    steps: list[Step] = []
    running = examine_steps(name_servers, topic=topic, group=group, dependencies=dependencies, **options)
    async with aclosing(running):
        async for step in running:
            steps.append(step)
            on_step(step)
    shown = name_servers if isinstance(name_servers, str) else ";".join(name_servers or ())
    return Report(name_servers=shown, topic=topic, group=group, at_ms=dependencies.clock.now_ms(), steps=tuple(steps))


def examine(
    name_servers: str | Sequence[str] | None = None,
    *,
    topic: str | None = None,
    group: str | None = None,
    on_step: OnStep = lambda _: None,
    **options: Unpack[DoctorOptions],
) -> Report:
    """`async_examine` for blocking code. `on_step` is called in another thread."""
    refuse_in_a_loop()
    portal = SHARED_PORTAL.acquire()
    try:
        return portal.run(async_examine(name_servers, topic=topic, group=group, on_step=on_step, **options))
    finally:
        SHARED_PORTAL.release()


async def _run(context: DoctorContext, check: Check, causes: dict[str, str]) -> Finding:
    """The finding of one step. `causes` names, for each step that blocks others, the step that is the reason."""
    if cause := _first_cause(check.needs, causes):
        causes[check.name] = cause
        return skipped(cause)
    finding = await _finding(context, check)
    if finding.verdict is Verdict.BROKEN:
        earlier = _first_cause(check.follows, causes)
        causes[check.name] = earlier or f"{check.name} is broken"
        return finding if earlier is None else unknown(earlier, finding.text, *finding.hints)
    if finding.verdict is Verdict.UNKNOWN and check.name in REQUIRED_STEPS:
        causes[check.name] = f"{check.name} is unknown"
    return finding


def _first_cause(steps: Sequence[str], causes: dict[str, str]) -> str | None:
    return next((causes[step] for step in steps if step in causes), None)


async def _finding(context: DoctorContext, check: Check) -> Finding:
    limit_ms = context.settings.step_timeout_ms
    try:
        async with asyncio.timeout(limit_ms / 1000):
            return await check.run(context)
    except TimeoutError:
        return unknown(f"no result within {duration(limit_ms)}")
    except PocketMQError as error:
        return unknown(f"{type(error).__name__}: {error}".partition("\n")[0].rstrip("."))
