"""Ours within the bounds that Apache's broker shows in the same run.

never earlier       than the rule says: a delay, a held pull, a transaction's grace
hardly ever later   than Apache's latest, and a little: a quarter of it, and 0.3 s for a machine on which others work, too
"""

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from conformance.apache import ApacheBroker
from conformance.programs import OurServer
from conformance.python.against import SETTINGS
from conformance.python.stage import Stage, Traits
from conformance.report import Scenario, Trial
from conformance.times import measuring
from conformance.times.measuring import CHECK_AFTER_S, HELD_MS, Measurement

COLUMNS: Final = ("5.3.3",)
EARLY_S: Final = 0.05
"""Between the clock of a broker and the loop of a client."""
SLACK: Final = 1.25
SLACK_S: Final = 0.3


class Bound(NamedTuple):
    check: str
    measure: Measurement
    least_s: float


BOUNDS: Final = (
    Bound("long poll: from a send until a waiting consumer has the message", measuring.long_poll, 0),
    Bound("a pull that waits for 5 s without a message", measuring.held_in_vain, HELD_MS / 1000),
    Bound("delay levels 1 and 2: never early, and how late", measuring.delays, 0),
    Bound(
        "check-back: from an open transaction to the check of its producer",
        measuring.check_back,
        CHECK_AFTER_S,
    ),
    Bound("rebalance: from a member's start or stop until all have their shares", measuring.joining, 0),
)


def _run(trial: Trial) -> None:
    with ApacheBroker(trial.version, trial.folder / "apache", SETTINGS, trial.say) as broker:
        theirs = asyncio.run(_measured(broker.name_server))
    with OurServer.both(trial.say, trial.folder / "ours", SETTINGS) as server:
        ours = asyncio.run(_measured(server.name_server))
    for bound in BOUNDS:
        found, limits = ours[bound.check], theirs[bound.check]
        told = f"{bound.check.partition(':')[0]}: PocketMQ {_shown(found)}, Apache {_shown(limits)}"
        trial.expect(bound.check, _flaws(bound, found, limits), measured=told)


async def _measured(name_server: str) -> dict[str, list[float]]:
    await measuring.long_poll(Stage(name_server, Traits()))  # a young JVM is slow
    return {bound.check: await bound.measure(Stage(name_server, Traits())) for bound in BOUNDS}


def _flaws(bound: Bound, found: Iterable[float], limits: Iterable[float]) -> list[str]:
    latest = max(limits) * SLACK + SLACK_S
    flaws = [f"{value:.3f} s is too early" for value in found if value < bound.least_s - EARLY_S]
    return flaws + [f"{value:.3f} s is later than {latest:.3f} s" for value in found if value > latest]


def _shown(values: list[float]) -> str:
    return f"{min(values):.3f} to {max(values):.3f} s"


SCENARIOS: Final = (Scenario("times", [bound.check for bound in BOUNDS], _run),)
