"""One side is killed while it writes, the other opens what is left: every message that was acknowledged as synced is there.

    round 1   killed soon: nothing but the log was ever synced
    round 2   killed after seconds: the checkpoint speaks of queues and index, and recovery begins in the middle of the log;
              PocketMQ, while it writes keys back to an index file that has older ones

Unacknowledged messages may be there or not; those that are there must be whole, and no offset may be missing between them.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from conformance.apache import ROOT, ApacheBroker
from conformance.broker_line import BrokerLine
from conformance.report import Scenario, Trial
from conformance.store import numbered, serving
from conformance.store.file_sizes import CRASHING
from conformance.store.numbered import Placed
from conformance.store.our_store import OurStore, rebuild, verify
from conformance.store.snapshots import Snapshot, read_from
from conformance.store.tables import write_tables
from pocketmq.errors import PocketMQError
from pocketmq.files import DiskFiles
from pocketmq.model.message_id import OffsetId
from pocketmq.store.index.index_file import IndexFile, IndexShape

APACHE_RECOVERS: Final = (
    "kill {}: Apache recovers, every message that was acknowledged is served, and no offset is missing"
)
APACHE_KEYS: Final = "kill {}: … each by its key"
SOUND_APACHE: Final = "kill {}: store verify calls log, queues and tables sound after Apache's recovery and stop"
REBUILT: Final = "Apache serves the same, and each by its key, after store rebuild has written queues and index again"
OURS_RECOVERS: Final = "kill {}: PocketMQ recovers, every acknowledged message exists, and no offset is missing"
OURS_KEYS: Final = "kill {}: … each by its key"
SOUND_OURS: Final = "kill {}: store verify calls it sound after PocketMQ's recovery and stop"
APACHE_AFTER: Final = "Apache starts again on what PocketMQ recovered and serves the same"

ROUNDS: Final = (0.0, 9.0)
"""For how many seconds each round continues to write after its first messages were acknowledged."""
LEAST_ACKNOWLEDGED: Final = 300
PAUSE_MS: Final = 20
"""The pause between two turns of a long round."""
SYNC_FLUSH: Final = {"flushDiskType": "SYNC_FLUSH"}
SENDERS: Final = 3
SEND_PAUSE_S: Final = 0.01
SENDER_NUMBERS: Final = 1_000_000
"""Each sender counts from a multiple of this."""


def _run_ours_killed(trial: Trial) -> None:
    folder = trial.folder / "store"
    write_tables(folder, {numbered.TOPIC: numbered.QUEUES})
    acknowledged: list[Placed] = []
    found: Snapshot = {}
    for kill, seconds in enumerate(ROUNDS, 1):
        trial.say(f"PocketMQ writes for a while, kill {kill}")
        acknowledged += _write_until_killed(folder, SENDER_NUMBERS * kill, seconds)
        trial.say(f"killed after {len(acknowledged)} messages were acknowledged in all")
        with _apache(trial) as broker, BrokerLine(broker.port) as line:
            found = read_from(line, numbered.KEYS)
            trial.expect(APACHE_RECOVERS.format(kill), numbered.flaws_of(found, acknowledged))
            everything = [message for messages in found.values() for message in messages]
            trial.expect(APACHE_KEYS.format(kill), serving.flaws_by_key(line, everything, may_repeat=True))
        trial.expect(SOUND_APACHE.format(kill), verify(folder, CRASHING, with_index=False))
    flaws = rebuild(folder, CRASHING)
    with _apache(trial) as broker, BrokerLine(broker.port) as line:
        everything = [message for messages in found.values() for message in messages]
        flaws += [*serving.flaws_in_queues(line, found), *serving.flaws_by_key(line, everything)]
        trial.expect(REBUILT, flaws)


def _write_until_killed(folder: Path, first_number: int, seconds: float) -> list[Placed]:
    """Let another process write; kill it; what it had acknowledged by then."""
    pause_ms = PAUSE_MS if seconds else 0
    command = [sys.executable, "-m", "conformance.store.killed_writer", str(folder), str(first_number), str(pause_ms)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        lines: list[str] = []
        try:
            for line in writer.stdout:
                lines.append(line)
                if len(lines) == LEAST_ACKNOWLEDGED:
                    break
            # Another thread continues to read; otherwise a full pipe would block the writer before it is killed.
            reader = threading.Thread(target=lambda: lines.extend(writer.stdout or ()))
            reader.start()
            time.sleep(seconds)
            if seconds:
                _wait_until(lambda: _has_keys_on_their_way(folder))
        finally:
            os.kill(writer.pid, signal.SIGKILL)
        reader.join()
    assert len(lines) >= LEAST_ACKNOWLEDGED, "the writer ended by itself"
    return [Placed.parse(line) for line in lines if line.endswith("\n")]


def _has_keys_on_their_way(folder: Path) -> bool:
    """Whether the newest index file has entries, and maybe slots, after the end that its header names."""
    newest = max((folder / "index").iterdir())
    file = IndexFile(DiskFiles(), newest, IndexShape(CRASHING.index_slots, CRASHING.index_entries))
    counted = file.header
    file.count_back()
    return file.header != counted


def _run_apache_killed(trial: Trial) -> None:
    folder = trial.folder / "store"
    write_tables(folder, {numbered.TOPIC: numbered.QUEUES})
    acknowledged: list[Placed] = []
    found: Snapshot = {}
    for kill, seconds in enumerate(ROUNDS, 1):
        with _apache(trial, SYNC_FLUSH) as broker:
            trial.say(f"Apache writes for a while, kill {kill}")
            acknowledged += _send_until_killed(broker, SENDERS * SENDER_NUMBERS * kill, seconds)
        trial.say(f"killed after {len(acknowledged)} messages were acknowledged in all")
        with OurStore(folder, CRASHING) as ours:
            trial.say(f"store opened {ours.report}")
            found = ours.read(numbered.KEYS)
            trial.expect(OURS_RECOVERS.format(kill), numbered.flaws_of(found, acknowledged))
            trial.expect(OURS_KEYS.format(kill), _unfound_keys(ours, found))
        trial.expect(SOUND_OURS.format(kill), verify(folder, CRASHING))
    with _apache(trial) as broker, BrokerLine(broker.port) as line:
        trial.expect(APACHE_AFTER, serving.flaws_in_queues(line, found))


def _send_until_killed(broker: ApacheBroker, first_number: int, seconds: float) -> list[Placed]:
    """Send from several connections at once; kill the broker; what it had acknowledged by then."""
    acknowledged: list[Placed] = []
    firsts = [first_number + sender * SENDER_NUMBERS for sender in range(SENDERS)]
    senders = [threading.Thread(target=_send_on, args=(broker.port, first, acknowledged)) for first in firsts]
    for sender in senders:
        sender.start()
    _wait_until(lambda: len(acknowledged) >= LEAST_ACKNOWLEDGED)
    time.sleep(seconds)
    broker.kill()
    for sender in senders:
        sender.join()
    return acknowledged


def _send_on(port: int, first: int, acknowledged: list[Placed]) -> None:
    """Send numbered messages until the line breaks."""
    number = first
    try:
        with BrokerLine(port) as line:
            while True:
                one = numbered.numbered(number)
                reply = line.send(one.topic, one.queue_id, one.body, one.properties)
                acknowledged.append(Placed(number, reply.queue_offset, OffsetId.parse(reply.msg_id).offset))
                number += 1
                time.sleep(SEND_PAUSE_S)
    except (OSError, PocketMQError):
        return


def _unfound_keys(ours: OurStore, found: Snapshot) -> Iterator[str]:
    """Messages that their key does not lead to, once the index has caught up."""
    for messages in found.values():
        for message in messages:
            key = numbered.key_of(numbered.number_in(message))
            offsets = [one.log_offset for one in ours.store.find_by_key(message.topic, key, 64)]
            if offsets != [message.log_offset]:
                yield f"key {key} leads to {offsets} instead of {message.log_offset}"


def _apache(trial: Trial, settings: dict[str, str] | None = None) -> ApacheBroker:
    return ApacheBroker(trial.version, trial.folder, {**CRASHING.apache_settings(), **(settings or {})}, trial.say)


def _wait_until(condition: Callable[[], bool], deadline_s: float = 60.0) -> None:
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"not within {deadline_s} s"
        time.sleep(0.01)


def _rounds(*checks: str) -> list[str]:
    return [check.format(kill) for kill in range(1, len(ROUNDS) + 1) for check in checks]


SCENARIOS: Final = (
    Scenario("PocketMQ killed", [*_rounds(APACHE_RECOVERS, APACHE_KEYS, SOUND_APACHE), REBUILT], _run_ours_killed),
    Scenario("Apache killed", [*_rounds(OURS_RECOVERS, OURS_KEYS, SOUND_OURS), APACHE_AFTER], _run_apache_killed),
)
