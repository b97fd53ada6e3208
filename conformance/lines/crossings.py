"""Messages are sent over a bad connection, and clients must survive it without a restart.

    calm      a few messages, so that all clients are connected
    storm     messages are sent for `STORM_S`, each until it is stored, and consumed at the same time
    calm      further messages arrive at once: no client needs a restart

No stored message is lost. A message may arrive twice if it was sent again because its result was unknown.
"""

import asyncio
from itertools import count
from typing import Final

from conformance.apache import ApacheBroker
from conformance.lines.bad_line import BadLine
from conformance.lines.travellers import JavaTraveller, OurTraveller
from conformance.programs import OurServer
from conformance.report import Scenario, Trial
from pocketmq.client import AsyncAdmin

STORM_S: Final = 25.0
ARRIVE_S: Final = 170.0
"""For messages in transit after the storm: the Java client repeats a lost pull at its next rebalance after two minutes."""
CALM_S: Final = 30.0
CALM_COUNT: Final = 50
SENDERS: Final = 8
TOPIC: Final = "CrossingTopic"
GROUP: Final = "CG_crossing"

HAPPENED: Final = "cuts, delays and doubled bytes happened"
NOTHING_LOST: Final = "every message that was stored is consumed"
RECOVERED: Final = "afterwards messages pass without a restart"
CHECKS: Final = (HAPPENED, NOTHING_LOST, RECOVERED)


async def cross(trial: Trial, name_server_port: int, broker_port: int, java: str | None) -> None:
    async with (
        asyncio.timeout(2 * STORM_S + ARRIVE_S + CALM_S + 120),
        BadLine(name_server_port, broker_port, seed=11) as line,
    ):
        async with AsyncAdmin(line.name_server) as admin:
            await admin.topics.create(TOPIC, queues=4)
        traveller: OurTraveller | JavaTraveller = OurTraveller(line.name_server, TOPIC, GROUP)
        if java:
            traveller = JavaTraveller(java, line.name_server, TOPIC, GROUP)
        async with traveller:
            await _send(traveller, [f"calm-{number}" for number in range(CALM_COUNT)])
            line.is_calm = False
            stored = await _storm(traveller, line)
            line.is_calm = True
            trial.say(f"{len(stored)} messages stored in the storm; {dict(line.done)}")
            trial.expect(HAPPENED, [f"no {what}" for what in _missed(line)])
            trial.expect(NOTHING_LOST, await _missing(traveller, stored, ARRIVE_S))
            later = [f"later-{number}" for number in range(CALM_COUNT)]
            async with asyncio.timeout(CALM_S):
                await _send(traveller, later)
            trial.expect(RECOVERED, await _missing(traveller, set(later), CALM_S))


def _missed(line: BadLine) -> list[str]:
    """What the line was to do to bytes, and has not done yet."""
    return [what for what in ("cut", "late", "twice", "again") if not line.done[what]]


async def _storm(traveller: OurTraveller | JavaTraveller, line: BadLine) -> set[str]:
    loop = asyncio.get_running_loop()
    end, numbers = loop.time() + STORM_S, count()
    last = end + STORM_S  # so much longer, if the dice were kind: few pieces pass on a busy machine
    stored: set[str] = set()

    async def sender() -> None:
        while loop.time() < end or (_missed(line) and loop.time() < last):
            number = f"storm-{next(numbers)}"
            await traveller.store(number)
            stored.add(number)
            await asyncio.sleep(0.005)

    await asyncio.gather(*(sender() for _ in range(SENDERS)))
    return stored


async def _send(traveller: OurTraveller | JavaTraveller, numbers: list[str]) -> None:
    for number in numbers:
        await traveller.store(number)


async def _missing(traveller: OurTraveller | JavaTraveller, wanted: set[str], seconds: float) -> list[str]:
    """Wait for all of them; those that did not come."""
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    missing = wanted
    while missing and loop.time() < end:
        await asyncio.sleep(0.1)
        missing = wanted - set(traveller.got)
    return [f"{len(missing)} of {len(wanted)} did not come: {sorted(missing)[:5]}"] if missing else []


def _java_to_ours(trial: Trial) -> None:
    with OurServer.both(trial.say, trial.folder) as ours:
        port = int(ours.name_server.rpartition(":")[2])
        asyncio.run(cross(trial, port, port + 10, trial.version))


def _ours_to_apache(trial: Trial) -> None:
    with ApacheBroker(trial.version, trial.folder / "apache", {}, trial.say) as apache:
        asyncio.run(cross(trial, apache.name_server_port, apache.port, None))


SCENARIOS: Final = (
    Scenario("the Java client to our broker", CHECKS, _java_to_ours),
    Scenario("our client to Apache's broker", CHECKS, _ours_to_apache),
)
