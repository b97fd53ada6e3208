"""Short conversations of the Java client with our servers, compared with the same conversations captured with Apache's.

The client prints what it sent, what it got, and the errors. `printed` defines how this is compared with the captured text. A client
version without captured text is compared with 5.3, the version that our broker reports. If there are differences, the conversation
is repeated with Apache's servers of that version, because the client may have changed.
"""

import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Self

from conformance import apache
from conformance.apache import ApacheBroker
from conformance.printed import Printed, Purpose, explained, flaws_of, judge
from conformance.programs import BINARY_HEADERS, WORK, OurServer, drive, mqadmin
from conformance.report import Scenario, Trial

LIVE: Final = "5.5.0"
"""Not captured."""
LIKE_LIVE: Final = "5.3.3"
"""What was captured of this version is what it is compared in."""
VERSIONS: Final = (LIVE, *apache.VERSIONS)
HOLD_S: Final = 240
"""The longest takes half a minute on a quiet machine."""
ATTEMPTS: Final = 3
"""On a busy machine a client misses a moment now and then: its heartbeat is late, and it is not served for half a minute."""
SETTINGS: Final = {
    "transactionTimeOut": 2000,
    "transactionCheckInterval": 4000,
    "traceTopicEnable": "true",
    "recallMessageEnable": "true",
}
"""As Apache's brokers were set up for the recordings."""

CONVERSATIONS: Final = {
    "route": "routes of existing, missing, and new topics",
    "send": "sending: plain, tagged, keyed, to a chosen queue, asynchronous, one-way, compressed",
    "sendErrors": "refused sends",
    "batch": "batches",
    "delay": "delayed messages",
    "timer": "timed messages, and recalling one",
    "transaction": "transactions: committed, rolled back, decided by a check",
    "requestReply": "requests and replies",
    "trace": "message traces of a producer and a consumer",
    "acl": "signed requests to servers without accounts",
    "push": "a push consumer: pulls that find, wait, are woken and filter",
    "members": "two members share the queues of a topic",
    "orderly": "ordered consumption under queue locks",
    "orderlyDeadLetter": "ordered consumption that gives up",
    "retry": "failed messages are delivered again, and become dead letters",
    "retryDefault": "… with the delay that the broker chooses",
    "broadcast": "broadcasting",
    "sql": "SQL92 subscriptions, and one that is refused",
    "pull": "a pull consumer: found, filtered, nothing new, beyond the end, held",
    "offsets": "offsets, times, and searches for messages by key and id",
    "litePull": "a lite pull consumer, subscribed and assigned",
    "namespace": "topics and groups in a namespace",
    "vip": "sending through the VIP port",
    "pop": "pop consumption",
}
PURPOSES: Final = (
    Purpose(
        "the test client has changed since the capture: it now also sends without a signature",
        "signed requests",
        "no signature: no failure|not expected: sent SendResult .*AclTopic",
        passes=True,
    ),
    Purpose(
        "a decided transaction is not checked; Apache stores decisions late",
        "transactions",
        r"missing: checked .*KEYS=(commit|rollback)[,}]",
        "5.3.3",
    ),
    Purpose(
        "a decided transaction is not checked; Apache stores decisions late",
        "transactions",
        r"missing: (checked|consumed) .*KEYS=(commit|rollback)[,}]|reached",
        LIVE,
    ),
    Purpose(
        "a committed message keeps REAL_TOPIC and REAL_QID, as in 5.3; in 5.5 it does not",
        "transactions",
        r"(missing|not expected): consumed .*KEYS=(later-)?commit[,}]",
        LIVE,
        passes=True,
    ),
    Purpose(
        "a pull beyond the end continues at the group's offset, and an invalid expression gets no messages",
        "pull",
        r"OFFSET_ILLEGAL|broken expression",
        passes=True,
    ),
    Purpose(
        "an invalid request is answered with 29, as by 5.3, and not with 1",
        "refused|pull",
        r"CODE: (1|29) ",
        "4.9.7",
        passes=True,
    ),
    Purpose(
        "a message that is given up becomes a dead letter at once, as in 5.3; 4.9 delivers it once more",
        "that gives up",
        "NO_NEW_MSG|%DLQ%CG_orderly_dlq",
        "4.9.7",
        passes=True,
    ),
    Purpose(
        "in the capture, a member started after the first message and never got it; here it did",
        "broadcasting",
        "not expected: consumed|reached [12] ",
        "4.9.7",
        passes=True,
    ),
    Purpose(
        "in the capture, a member got a message twice because its queue moved and returned; here it did not",
        "two members",
        "missing: consumed",
        "4.9.7",
        passes=True,
    ),
)


def _scenario(name: str, mode: str, options: Iterable[str]) -> list[Scenario]:
    return [
        Scenario(name, [CONVERSATIONS[one] for one in names(version, mode)], _runner(mode, *options), [version])
        for version in VERSIONS
    ]


def names(version: str, mode: str) -> list[str]:
    """The conversations that were captured in a mode, in their order."""
    folder = _recordings(version, mode)
    return [name for name in CONVERSATIONS if (folder / f"{name}.txt").exists()]


def _runner(mode: str, *options: str) -> Callable[[Trial], None]:
    def run(trial: Trial) -> None:
        with Servers(trial, trial.folder) as servers:
            for name in names(trial.version, mode):
                flaws = servers.compared(mode, name, options)
                for attempt in range(1, ATTEMPTS):
                    if _all_explained(trial, name, flaws):
                        break
                    trial.say(f"{name} is tried again, with servers of its own, as it printed: {flaws[0]}")
                    with Servers(trial, trial.folder / f"{name}-{attempt}") as fresh:
                        flaws = fresh.compared(mode, name, options)
                judge(trial, CONVERSATIONS[name], flaws, PURPOSES)

    return run


class Servers:
    """Our servers; and Apache's, when they are needed: for a version that was not captured."""

    def __init__(self, trial: Trial, folder: Path) -> None:
        self._trial = trial
        self._folder = folder
        self._ours = OurServer.both(trial.say, folder, SETTINGS)
        self._theirs: ApacheBroker | None = None

    def __enter__(self) -> Self:
        self._ours.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self._ours.__exit__(*exc)
        finally:
            if self._theirs is not None:
                self._theirs.stop()

    def compared(self, mode: str, name: str, options: Iterable[str]) -> list[str]:
        """Hold a conversation; what was printed differently."""
        version = self._trial.version
        printed = _held(version, self._ours.name_server, name, options)
        (self._folder / f"{name}.txt").write_text(printed.text, "utf-8")
        flaws = flaws_of(captured(version, mode, name), printed, version)
        if version != LIVE or _all_explained(self._trial, name, flaws):
            return flaws
        measure = _held(version, self._apache(), name, options)
        (self._folder / f"{name}-apache.txt").write_text(measure.text, "utf-8")
        # Apache notes decisions of transactions late: how often it asks and delivers is another time each time.
        now = flaws_of(measure, printed, version, once=name == "transaction")
        return min(flaws, now, key=len)

    def _apache(self) -> str:
        if self._theirs is None:
            self._theirs = ApacheBroker(LIVE, self._folder / "apache", SETTINGS, self._trial.say)
            self._theirs.start()
        return self._theirs.name_server


def _held(version: str, name_server: str, name: str, options: Iterable[str]) -> Printed:
    if name == "pop":
        _prepare_pop(version, name_server)
    if name != "broadcast":
        return drive(version, name_server, name, *options, timeout_s=HOLD_S)
    with _offsets_in_files:
        shutil.rmtree(WORK / ".rocketmq_offsets", ignore_errors=True)  # what an earlier broadcast consumer left
        return drive(version, name_server, name, *options, timeout_s=HOLD_S)


_offsets_in_files: Final = threading.Lock()
"""Broadcasting consumers of all versions keep their offsets in the same files."""


def captured(version: str, mode: str, name: str) -> Printed:
    """What the client printed with Apache's servers."""
    return Printed((_recordings(version, mode) / f"{name}.txt").read_text("utf-8"), 0)


def _recordings(version: str, mode: str) -> Path:
    return apache.GOLDEN / "wire" / (LIKE_LIVE if version == LIVE else version) / mode


def _all_explained(trial: Trial, name: str, flaws: Iterable[str]) -> bool:
    return all(explained(trial.version, CONVERSATIONS[name], flaw, PURPOSES) for flaw in flaws)


def _prepare_pop(version: str, name_server: str) -> None:
    """As it was prepared for the recording: a topic, and a group that shall pop it."""
    mqadmin(version, name_server, "updateTopic", "-c", "DefaultCluster", "-t", "PopTopic", "-r", "2", "-w", "2")
    mqadmin(
        version,
        name_server,
        "setConsumeMode",
        "-c",
        "DefaultCluster",
        "-t",
        "PopTopic",
        "-g",
        "CG_pop",
        "-m",
        "POP",
        "-q",
        "0",
    )


SCENARIOS: Final = (
    *_scenario("JSON headers", "json", ()),
    *_scenario("binary headers", "binary", (BINARY_HEADERS,)),
)
