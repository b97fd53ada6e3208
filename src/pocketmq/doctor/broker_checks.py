"""Checks of the brokers: disk, clock, flush mode, encryption and accounts."""

import re
import ssl
from collections.abc import Mapping

from msgspec.structs import replace

from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.client.cluster.instance import Instance
from pocketmq.codes import RequestCode
from pocketmq.doctor.context import DoctorContext
from pocketmq.doctor.report import Finding, broken, info, ok, unknown, warning
from pocketmq.errors import PocketMQError
from pocketmq.model.human import duration
from pocketmq.net import TlsMode

FULL_RATIO, CLEAN_RATIO = 0.90, 0.75
"""RocketMQ's defaults: the disk use from which it rejects messages, and from which it deletes old ones. Apache's brokers do not
report the first."""
DISPATCH_BEHIND_BYTES = 64 << 20
"""A broker whose queues are further behind its log is slow; less is normal under load."""
_RUN_TIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")
_FLUSH_TEXTS = {
    "SYNC_FLUSH": "each message is synced to disk before the send is acknowledged",
    "ASYNC_FLUSH": "messages are synced to disk after the send is acknowledged; unsynced messages are lost on power failure",
}


async def check_disk(context: DoctorContext) -> Finding:
    texts: list[str] = []
    hints: list[str] = []
    for broker, table in context.runtime.items():
        used = _fraction(table.get("commitLogDiskRatio", ""))
        if used is None:
            continue
        full = (context.number_setting(broker, "diskSpaceWarningLevelRatio") or round(FULL_RATIO * 100)) / 100
        clean = (context.number_setting(broker, "diskMaxUsedSpaceRatio") or round(CLEAN_RATIO * 100)) / 100
        if used > full:
            return broken(
                f"the disk of {broker.name} is {used:.0%} full; the broker rejects messages from {full:.0%}",
                "Free some disk space or add more; the broker then accepts messages again",
            )
        if used > clean:
            hints.append(
                f"the disk of {broker.name} is over {clean:.0%} full; the broker deletes old messages at any hour"
            )
        texts.append(f"{broker.name} {used:.0%} full")
    return ok(", ".join(texts), *hints) if texts else unknown("no broker reported its disk use")


async def check_clocks(context: DoctorContext) -> Finding:
    """A broker reports when it started and how long it has run, in whole seconds: differences below two seconds mean nothing."""
    skews: list[int] = []
    for broker, table in context.runtime.items():
        broker_ms = broker_now_ms(table)
        if broker_ms is None:
            continue
        skew_ms = broker_ms - context.runtime_ms[broker]
        skews.append(abs(skew_ms))
        if abs(skew_ms) > context.settings.max_clock_skew_ms:
            direction = "ahead of" if skew_ms > 0 else "behind"
            return broken(
                f"the clock of {broker.name} is {duration(abs(skew_ms))} {direction} the clock of this machine",
                "Synchronize both clocks (NTP); delays, message times and searches by time are wrong by this difference",
            )
    if not skews:
        return unknown("no broker reported its time")
    return ok(f"largest clock skew: {duration(max(skews))}")


async def check_flush(context: DoctorContext) -> Finding:
    texts: list[str] = []
    hints: list[str] = []
    for broker in context.masters:
        mode = context.setting(broker, "flushDiskType")
        if mode is not None:
            texts.append(f"{broker.name} {mode}: {_FLUSH_TEXTS.get(mode, 'unknown mode')}")
        runtime = context.runtime.get(broker, {})
        # Apache's brokers report one value for queues and keys
        behind = runtime.get("queuesBehindBytes", runtime.get("dispatchBehindBytes", ""))
        if behind.isdigit() and int(behind) > DISPATCH_BEHIND_BYTES:
            hints.append(
                f"the queues of {broker.name} are {int(behind):,} bytes behind the commit log; consumers get messages late"
            )
    return ok("; ".join(texts), *hints) if texts else unknown("no broker reported its settings to this account")


async def check_tls(context: DoctorContext) -> Finding:
    """Whether this examination used TLS, and whether brokers also accept plain text."""
    tls = context.settings.tls
    if not tls and _is_local(context):
        return info("plain text, only within this machine")
    if not tls:
        return warning(
            "plain text: others on the network can read and repeat requests",
            "Start servers with a certificate (--tls-cert), and clients with TLS (--tls, tls=True)",
        )
    hints = [
        f"{broker.name} also accepts plain text"
        for broker in context.masters
        if context.setting(broker, "tls.server.mode") == TlsMode.PERMISSIVE
    ]
    if isinstance(tls, ssl.SSLContext) and tls.verify_mode is ssl.CERT_NONE:
        hints.append("any server that answers is trusted")
        return warning(
            "TLS without verification of certificates", "Name the certificate authority (--tls-ca FILE)", *hints
        )
    return ok("TLS with verified certificates", *hints)


async def check_accounts(context: DoctorContext) -> Finding:
    """Whether brokers reject requests without a signature. Without an account, all requests of this examination were unsigned."""
    if context.settings.credentials is None:
        return _no_accounts(context, "brokers have no accounts, or do not check them")
    broker = context.masters[0]
    if await _accepts_unsigned(context, broker):
        return _no_accounts(context, f"{broker.name} does not check accounts, and ignores yours")
    return ok("accounts are required")


def _no_accounts(context: DoctorContext, why: str) -> Finding:
    if _is_local(context):
        return info(f"every client on this machine has access: {why}")
    return warning(
        f"every client on the network has access: {why}", "Start name servers and brokers with --accounts FILE"
    )


def _is_local(context: DoctorContext) -> bool:
    """Whether all name servers and brokers are at loopback addresses."""
    addresses = [*context.addresses, *(broker.address for broker in context.brokers)]
    return all(address.is_loopback for address in addresses)


def broker_now_ms(runtime: Mapping[str, str]) -> int | None:
    """The time of a broker's clock: its start time plus its run time."""
    booted, match = runtime.get("bootTimestamp", ""), _RUN_TIME.search(runtime.get("runtime", ""))
    if not booted.isdigit() or match is None:
        return None
    days, hours, minutes, seconds = map(int, match.groups())
    return int(booted) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


async def _accepts_unsigned(context: DoctorContext, broker: BrokerAddress) -> bool:
    instance = Instance.join(replace(context.settings, credentials=None), context.dependencies)
    try:
        await instance.rpc.ask(broker.address, RequestCode.GET_BROKER_RUNTIME_INFO)
    except PocketMQError:
        return False
    finally:
        await instance.leave()
    return True


def _fraction(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None
