"""Short conversations of the real Java client, one after the other with the same servers, as they were captured with Apache's.

The client prints what it sent, what it got and how it was refused. The captured text is the measure; `printed` says what is compared.
"""

import shutil
from collections.abc import Callable, Iterable
from typing import Final

from conformance import apache
from conformance.printed import Printed, Purpose, flaws_of, judge
from conformance.programs import BINARY_HEADERS, WORK, OurServer, drive, mqadmin
from conformance.report import Scenario, Trial

HOLD_S: Final = 240
"""The longest takes half a minute on a quiet machine."""
ATTEMPTS: Final = 2
"""A busy machine lets a client miss its moment now and then: it may try once more."""
SETTINGS: Final = {
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 4000,
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
}
"""As Apache's brokers were set up for the recordings."""

CONVERSATIONS: Final = {
    "route": "routes of topics that are there, are not, and have just been made",
    "send": "sending: plain, tagged, keyed, to a chosen queue, asynchronous, one-way, compressed",
    "sendErrors": "sends that are refused",
    "batch": "batches",
    "delay": "delayed messages",
    "timer": "timed messages, and recalling one",
    "transaction": "transactions: committed, rolled back, decided when asked",
    "requestReply": "requests and replies",
    "trace": "message traces of a producer and a consumer",
    "acl": "signed requests to servers that ask for no signature",
    "push": "a push consumer: pulls that find, wait, are woken and filter",
    "members": "two members share the queues of a topic",
    "orderly": "ordered consumption under queue locks",
    "orderlyDeadLetter": "ordered consumption that gives up",
    "retry": "failed messages come again, and become dead letters",
    "retryDefault": "… with the delay that the broker chooses",
    "broadcast": "broadcasting",
    "sql": "SQL92 subscriptions, and one that is refused",
    "pull": "a pull consumer: found, filtered, nothing new, beyond the end, held",
    "offsets": "offsets, times, and looking for messages by key and id",
    "litePull": "a lite pull consumer, subscribed and assigned",
    "namespace": "topics and groups in a namespace",
    "vip": "sending through the second port",
    "pop": "pop consumption",
}
PURPOSES: Final[tuple[Purpose, ...]] = ()


def _scenario(name: str, mode: str, options: Iterable[str]) -> list[Scenario]:
    return [
        Scenario(name, [CONVERSATIONS[one] for one in _captured(version, mode)], _runner(mode, *options), [version])
        for version in apache.VERSIONS
    ]


def _captured(version: str, mode: str) -> list[str]:
    folder = apache.GOLDEN / "wire" / version / mode
    return [name for name in CONVERSATIONS if (folder / f"{name}.txt").exists()]


def _runner(mode: str, *options: str) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        shutil.rmtree(WORK / ".rocketmq_offsets", ignore_errors=True)  # what an earlier broadcast consumer left
        with OurServer.both(trial.say, trial.folder, SETTINGS) as ours:
            for name in _captured(trial.version, mode):
                if name == "pop":
                    _prepare_pop(trial.version, ours.name_server)
                judge(trial, CONVERSATIONS[name], _held(trial, ours.name_server, mode, name, options), PURPOSES)

    return run


def _held(trial: Trial, name_server: str, mode: str, name: str, options: Iterable[str]) -> list[str]:
    """Hold a conversation; what was printed differently."""
    theirs = Printed((apache.GOLDEN / "wire" / trial.version / mode / f"{name}.txt").read_text("utf-8"), 0)
    flaws: list[str] = []
    for attempt in range(ATTEMPTS):
        ours = drive(trial.version, name_server, name, *options, timeout_s=HOLD_S)
        (trial.folder / f"{name}-{attempt}.txt").write_text(ours.text, "utf-8")
        flaws = flaws_of(theirs, ours)
        if all(any(one.covers(CONVERSATIONS[name], flaw) for one in PURPOSES) for flaw in flaws):
            break
    return flaws


def _prepare_pop(version: str, name_server: str) -> None:
    """As it was prepared for the recording: a topic, and a group that shall pop it."""
    mqadmin(version, name_server, "updateTopic", "-c", "DefaultCluster", "-t", "PopTopic", "-r", "2", "-w", "2")


SCENARIOS: Final = (
    *_scenario("JSON headers", "json", ()),
    *_scenario("binary headers", "binary", (BINARY_HEADERS,)),
)
