"""The brokers' machines: disk, clock, when messages are safe, who can listen in, and who may come in."""

import re
import ssl
from collections.abc import Mapping

from msgspec.structs import replace

from pocketmq.client.admin.reach import BrokerPlace
from pocketmq.client.cluster.instance import Instance
from pocketmq.codes import RequestCode
from pocketmq.doctor.report import Finding, broken, fact, fine, unknown, warning
from pocketmq.doctor.visit import Visit
from pocketmq.errors import PocketMQError
from pocketmq.model.human import duration
from pocketmq.net.tls import TlsMode

FULL_RATIO, CLEAN_RATIO = 0.90, 0.75
"""Where RocketMQ refuses to store, and where it begins to delete what is old; its settings do not tell the first."""
DISPATCH_BEHIND_BYTES = 64 << 20
"""So much in the log that is in no queue yet is more than a moment's."""
_RUN_TIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")
_FLUSH_WORDS = {
    "SYNC_FLUSH": "a message is on the disk before its producer is told",
    "ASYNC_FLUSH": "a message is written down moments after its producer is told: a power cut may lose the last ones",
}


async def look_at_disk(visit: Visit) -> Finding:
    texts: list[str] = []
    notes: list[str] = []
    for place, table in visit.runtime.items():
        used = _fraction(table.get("commitLogDiskRatio", ""))
        if used is None:
            continue
        full = (visit.whole(place, "diskSpaceWarningLevelRatio") or round(FULL_RATIO * 100)) / 100
        clean = (visit.whole(place, "diskMaxUsedSpaceRatio") or round(CLEAN_RATIO * 100)) / 100
        if used > full:
            return broken(
                f"the disk of {place.name} is {used:.0%} full, and from {full:.0%} on it takes no messages",
                "Make room on it or give it more; messages are taken again as soon as there is space",
            )
        if used > clean:
            notes.append(f"the disk of {place.name} is over {clean:.0%} full: old messages are deleted at any hour")
        texts.append(f"{place.name} {used:.0%} full")
    return fine(", ".join(texts), *notes) if texts else unknown("no broker tells how full its disk is")


async def look_at_clocks(visit: Visit) -> Finding:
    """A broker tells when it started and for how long it has run. Whole seconds, so less than two are no matter."""
    skews: list[int] = []
    for place, table in visit.runtime.items():
        theirs_ms = broker_now_ms(table)
        if theirs_ms is None:
            continue
        skew_ms = theirs_ms - visit.runtime_ms[place]
        skews.append(abs(skew_ms))
        if abs(skew_ms) > visit.settings.max_clock_skew_ms:
            way = "ahead of" if skew_ms > 0 else "behind"
            return broken(
                f"the clock of {place.name} is {duration(abs(skew_ms))} {way} the one of this machine",
                "Let both follow the same time (NTP): delays, times of messages and searches by time are wrong by as much",
            )
    if not skews:
        return unknown("no broker tells its time")
    return fine(f"no broker is further away than {duration(max(skews))}")


async def look_at_flush(visit: Visit) -> Finding:
    texts: list[str] = []
    notes: list[str] = []
    for place in visit.masters:
        mode = visit.setting(place, "flushDiskType")
        if mode is not None:
            texts.append(f"{place.name} {mode}: {_FLUSH_WORDS.get(mode, 'not known here')}")
        told = visit.runtime.get(place, {})
        behind = told.get(
            "queuesBehindBytes", told.get("dispatchBehindBytes", "")
        )  # Apache has the one for queues and keys
        if behind.isdigit() and int(behind) > DISPATCH_BEHIND_BYTES:
            notes.append(f"{int(behind):,} bytes at {place.name} are stored and in no queue yet: readers see them late")
    return fine("; ".join(texts), *notes) if texts else unknown("this account is not told the brokers' settings")


async def look_at_tls(visit: Visit) -> Finding:
    """What this examination used, and whether brokers that say so let plain text in beside it."""
    tls = visit.settings.tls
    if not tls and _is_local(visit):
        return fact("plain text, which stays on this machine")
    if not tls:
        return warning(
            "plain text: whoever is between can read it, and send requests again",
            "Give servers a certificate (--tls-cert), and clients TLS (--tls, tls=True)",
        )
    notes = [
        f"{place.name} takes plain text as well"
        for place in visit.masters
        if visit.setting(place, "tls.server.mode") == TlsMode.PERMISSIVE
    ]
    if isinstance(tls, ssl.SSLContext) and tls.verify_mode is ssl.CERT_NONE:
        notes.append("whoever answers is believed to be the server")
        return warning(
            "TLS without a check of certificates", "Name the authority that signed them (--tls-ca FILE)", *notes
        )
    return fine("TLS, and certificates are checked", *notes)


async def look_at_accounts(visit: Visit) -> Finding:
    """Whether a request without a signature is turned away. Without an account, all that was asked until here was one."""
    if visit.settings.credentials is None:
        return _open_to_all(visit, "there are no accounts, or they are not checked")
    place = visit.masters[0]
    if await _lets_anybody_in(visit, place):
        return _open_to_all(visit, f"{place.name} does not check accounts, so yours is not looked at")
    return fine("only accounts are let in")


def _open_to_all(visit: Visit, why: str) -> Finding:
    if _is_local(visit):
        return fact(f"everybody on this machine is let in: {why}")
    return warning(
        f"everybody who reaches the brokers is let in: {why}", "Start name servers and brokers with --accounts FILE"
    )


def _is_local(visit: Visit) -> bool:
    """Whether nothing of this leaves the machine: name servers and brokers are at addresses that no other machine reaches."""
    addresses = [*visit.addresses, *(place.address for place in visit.places)]
    return all(address.is_loopback for address in addresses)


def broker_now_ms(runtime: Mapping[str, str]) -> int | None:
    """A broker's own time, from what it says about itself."""
    booted, match = runtime.get("bootTimestamp", ""), _RUN_TIME.search(runtime.get("runtime", ""))
    if not booted.isdigit() or match is None:
        return None
    days, hours, minutes, seconds = map(int, match.groups())
    return int(booted) + (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000


async def _lets_anybody_in(visit: Visit, place: BrokerPlace) -> bool:
    """Whether a broker answers somebody without an account."""
    instance = Instance.join(replace(visit.settings, credentials=None), visit.around)
    try:
        await instance.links.ask(place.address, RequestCode.GET_BROKER_RUNTIME_INFO)
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
