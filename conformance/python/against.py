"""All acts as scenarios: our client with Apache's broker of each version, and with PocketMQ's, which shows what to compare with."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Final

from conformance import apache
from conformance.apache import ApacheBroker
from conformance.programs import OurServer
from conformance.python.acts import PROGRAMMES
from conformance.python.stage import Act, Programme, Stage, Traits, played
from conformance.report import Scenario, Trial

OURS: Final = "PocketMQ"
COLUMNS: Final = ("5.5.0", "5.3.3", "4.9.7", OURS)
SETTINGS: Final = {
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 4000,
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
    "waitTimeMillsInSendQueue": 10_000,
}
"""The last: a machine on which others work, too, is no reason to refuse a send."""
TRAITS: Final = {
    "4.9.7": Traits(
        timers=False,
        no_timers=True,
        recall=False,
        resets_itself=False,
        exact_times=False,
        tells_new_groups=False,
        pops=False,
        no_pops=True,
    ),
}
"""Of brokers that lack something; all others have everything."""
AT_ONCE: Final = 8
"""Acts that play at the same time."""
ACT_S: Final = 180
ATTEMPTS: Final = 2
"""A busy machine starves a client now and then; an act that fails plays once more."""


def unable(column: str) -> str:
    return "" if column == OURS else apache.unable(column)


def cluster(trial: Trial, settings: dict[str, object]) -> AbstractContextManager[ApacheBroker | OurServer]:
    """A running name server with a broker, of the kind that the column says."""
    if trial.version == OURS:
        return OurServer.both(trial.say, trial.folder, settings)
    return ApacheBroker(trial.version, trial.folder, settings, trial.say)


def _runner(acts: Iterable[Act]) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        with cluster(trial, dict(SETTINGS)) as servers:
            asyncio.run(_play_all(trial, list(acts), servers.name_server))

    return run


async def _play_all(trial: Trial, acts: list[Act], name_server: str) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def play(act: Act) -> None:
        flaws: list[str] = []
        for _ in range(ATTEMPTS):
            async with gate:
                flaws = await played(act, Stage(name_server, TRAITS.get(trial.version, Traits())), ACT_S)
            if not flaws:
                break
            trial.say(f"{act.check}: {'; '.join(flaws)}")
        trial.expect(act.check, flaws)

    await asyncio.gather(*map(play, acts))


def _scenarios(programmes: Iterable[Programme]) -> list[Scenario]:
    """One for each column: all acts share its broker. Those that a broker has no use for are not among its checks."""
    made = []
    for column in COLUMNS:
        traits = TRAITS.get(column, Traits())
        acts = {f"{programme.name}: {act.check}": act for programme in programmes for act in programme.acts_for(traits)}
        named = [act._replace(check=check) for check, act in acts.items()]
        made.append(Scenario("Python client", [act.check for act in named], _runner(named), [column]))
    return made


SCENARIOS: Final = tuple(_scenarios(PROGRAMMES))
