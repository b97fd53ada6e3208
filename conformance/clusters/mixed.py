"""One cluster, two kinds of servers. Topics are made for the whole cluster, so that clients meet both kinds.

Apache's name server ◄── Apache's broker-a          our name server ◄── Apache's broker-a
                     ◄── our broker-b
"""

import re
import time
from collections.abc import Callable, Iterator
from typing import Final

from conformance.apache import ApacheBroker
from conformance.clients.conversations import CONVERSATIONS, HOLD_S, SETTINGS, captured
from conformance.printed import flaws_of
from conformance.programs import OurServer, drive, mqadmin
from conformance.report import Scenario, Trial

TOPICS: Final = {
    "push": ("PushTopic", 2),
    "orderly": ("OrderlyTopic", 2),
    "delay": ("DelayTopic", 2),
    "transaction": ("TransactionTopic", 2),
    "retry": ("RetryTopic", 1),
}
"""Conversations to hold, each with its topic and the queues that it has on each broker."""
DEAD_LETTERS: Final = "%DLQ%"
ATTEMPTS: Final = 3
GONE_S: Final = 30

LISTED: Final = "Apache's name server lists our broker beside Apache's"
SPREAD: Final = "a topic created for the cluster has its queues on both"
SEEN: Final = "mqadmin shows the queues of both, and the offsets of a group in them"
GONE: Final = "our broker is not listed any more when it has stopped, and Apache's is"
REGISTERED: Final = "our name server lists Apache's broker and its topics"
FORGOTTEN: Final = "… and forgets it when it has stopped"


def _talk(name: str) -> str:
    return f"the Java client with both: {CONVERSATIONS[name]}"


def _talk_through_ours(name: str) -> str:
    return f"the Java client finds it there: {CONVERSATIONS[name]}"


def _run_beside_apache(trial: Trial) -> None:
    with ApacheBroker(trial.version, trial.folder / "apache", SETTINGS, trial.say) as apache:
        ours = OurServer.broker(trial.say, trial.folder / "ours", "broker-b", apache.name_server, SETTINGS)
        with ours:
            shown = _listed(trial.version, apache.name_server)
            trial.expect(LISTED, [] if shown == {"broker-a", "broker-b"} else [f"it lists {sorted(shown)}"])
            for topic, queues in TOPICS.values():
                _make_topic(trial.version, apache.name_server, topic, queues)
            trial.expect(SPREAD, _flaws_of_route(trial.version, apache.name_server))
            for name in TOPICS:
                trial.expect(_talk(name), _held(trial, apache.name_server, name, both=True))
            trial.expect(SEEN, _flaws_of_progress(trial.version, apache.name_server))
        trial.expect(
            GONE, _waited(lambda: _listed(trial.version, apache.name_server) == {"broker-a"}, "broker-b stays")
        )


def _run_at_our_name_server(trial: Trial) -> None:
    with OurServer.name_server_alone(trial.say, trial.folder / "ours") as ours:
        apache = ApacheBroker(trial.version, trial.folder / "apache", SETTINGS, trial.say)
        apache.register_also_with(ours.name_server)
        with apache:
            shown = _listed(trial.version, ours.name_server)
            topics = mqadmin(trial.version, ours.name_server, "topicList").text
            flaws = [] if shown == {"broker-a"} and "TBW102" in topics else [f"it lists {sorted(shown)}: {topics}"]
            trial.expect(REGISTERED, flaws)
            for name in TOPICS:
                trial.expect(_talk_through_ours(name), _held(trial, ours.name_server, name, both=False))
        trial.expect(FORGOTTEN, _waited(lambda: not _listed(trial.version, ours.name_server), "broker-a stays"))


def _listed(version: str, name_server: str) -> set[str]:
    """The brokers that a name server lists."""
    return set(re.findall(r"\bbroker-[ab]\b", mqadmin(version, name_server, "clusterList").text))


def _make_topic(version: str, name_server: str, topic: str, queues: int) -> None:
    number = str(queues)
    mqadmin(version, name_server, "updateTopic", "-c", "DefaultCluster", "-t", topic, "-r", number, "-w", number)


def _flaws_of_route(version: str, name_server: str) -> Iterator[str]:
    shown = mqadmin(version, name_server, "topicRoute", "-t", "PushTopic").text
    for broker in ("broker-a", "broker-b"):
        if shown.count(f'"{broker}"') != 2:  # once with its address, once with its queues
            yield f"{broker} is not in the route: {' '.join(shown.split())}"


def _flaws_of_progress(version: str, name_server: str) -> Iterator[str]:
    for command in (("topicStatus", "-t", "PushTopic"), ("consumerProgress", "-g", "CG_push")):
        shown = mqadmin(version, name_server, *command).text
        for broker in ("broker-a", "broker-b"):
            rows = re.findall(rf"^.*PushTopic.*{broker}|^{broker} .*", shown, re.MULTILINE)
            if len(rows) != 2:
                yield f"{command[0]} shows {len(rows)} queues of {broker} instead of 2"


def _held(trial: Trial, name_server: str, name: str, *, both: bool) -> list[str]:
    """Hold a conversation; what was printed differently than with an Apache broker alone.

    With both brokers it must have met both. A message's broker is called broker-a then, as it was captured. Dead letters are
    left out: each broker keeps its own, and the client looks at one.
    """
    flaws: list[str] = []
    for _ in range(ATTEMPTS):
        printed = drive(trial.version, name_server, name, timeout_s=HOLD_S)
        (trial.folder / f"{name}.txt").write_text(printed.text, "utf-8")
        flaws = flaws_of(
            captured(trial.version, "json", name),
            printed._replace(text=printed.text.replace("broker-b", "broker-a")),
            trial.version,
        )
        if both:
            flaws = [flaw for flaw in flaws if DEAD_LETTERS not in flaw]
        if both and not {"broker-a", "broker-b"} <= set(re.findall(r"\bbroker-[ab]\b", printed.text)):
            flaws.append("only one of the brokers was met")
        if not flaws:
            break
    return flaws


def _waited(is_so: Callable[[], bool], otherwise: str) -> list[str]:
    """Wait until it is so; what is wrong when it does not come."""
    end = time.monotonic() + GONE_S
    while time.monotonic() < end:
        if is_so():
            return []
        time.sleep(1)
    return [f"{otherwise} for {GONE_S} s"]


SCENARIOS: Final = (
    Scenario("our broker beside Apache's", [LISTED, SPREAD, *map(_talk, TOPICS), SEEN, GONE], _run_beside_apache),
    Scenario(
        "Apache's broker at our name server",
        [REGISTERED, *map(_talk_through_ours, TOPICS), FORGOTTEN],
        _run_at_our_name_server,
    ),
)
