"""One side deletes the oldest log files with their queues and index, and the other side finds exactly the rest.

PocketMQ removes some files, appends ─► Apache serves the rest, removes more by itself ─► PocketMQ reads what is left then
"""

import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from conformance.apache import ApacheBroker
from conformance.broker_line import BrokerLine
from conformance.report import Scenario, Trial
from conformance.store import serving
from conformance.store.drafts import Draft, sample, topics_for
from conformance.store.file_sizes import SMALL
from conformance.store.our_store import OurStore, verify
from conformance.store.snapshots import Snapshot, differences, read_from
from conformance.store.tables import write_tables
from pocketmq.model.message import StoredMessage

SOUND_OURS: Final = "store verify calls the store sound after PocketMQ removed its oldest files"
APACHE_SERVES: Final = "Apache serves the remaining messages, and its queues begin where PocketMQ's do"
SOUND_APACHE: Final = "store verify calls the store sound after Apache removed more of the oldest files"
OURS_READS: Final = "PocketMQ reads the remaining messages, and its queues begin after the deleted ones"

CLEAN_S: Final = 150.0
"""Apache looks for old files for the first time after a minute, then every ten seconds."""
_AT_ONCE: Final = {"fileReservedTime": 0}


def _run(trial: Trial) -> None:
    folder = trial.folder / "store"
    write_tables(folder, topics_for(trial.version))
    left = _write_and_remove(trial, folder)
    trial.expect(SOUND_OURS, verify(folder, SMALL))
    settings = {**SMALL.apache_settings(), **_AT_ONCE, "deleteWhen": _hours()}
    with ApacheBroker(trial.version, trial.folder, settings, trial.say) as broker, BrokerLine(broker.port) as line:
        trial.expect(APACHE_SERVES, _flaws_of_apache(line, left))
        _wait_for_removal(trial, line)
        left = read_from(line, left)
    trial.expect(SOUND_APACHE, verify(folder, SMALL))
    with OurStore(folder, SMALL) as ours:
        trial.say(f"store opened {ours.report}")
        # Apache may have removed some more on its way out.
        expected = _since(left, _log_start(folder))
        trial.expect(OURS_READS, differences(expected, ours.read(expected)))


def _write_and_remove(trial: Trial, folder: Path) -> Snapshot:
    """Write, let retention remove the oldest ten files, write more; what is left in the queues."""
    trial.say("PocketMQ writes and removes its oldest files")
    drafts = [one for one in sample(trial.version, SMALL.largest_body) if one.topic in ("Orders", "Words", "Bulk")]
    with OurStore(folder, SMALL) as ours:
        written = ours.append(drafts)
    with OurStore(folder, SMALL, retention_hours=0, delete_hours=(datetime.now().hour,)) as ours:
        ours.wait_until(lambda: ours.store.min_offset("Orders", 0) > 0)
        for _ in range(10):
            ours.pump()
        written += ours.append(drafts)
    return _since(_by_queue([*drafts, *drafts], written), _log_start(folder))


def _by_queue(drafts: list[Draft], written: list[StoredMessage]) -> Snapshot:
    queues: Snapshot = {}
    for draft, message in zip(drafts, written, strict=True):
        queues.setdefault((draft.topic, draft.queue_id), []).append(message)
    return queues


def _since(queues: Snapshot, log_start: int) -> Snapshot:
    return {key: [one for one in messages if one.log_offset >= log_start] for key, messages in queues.items()}


def _log_start(folder: Path) -> int:
    return min(int(path.name) for path in (folder / "commitlog").iterdir())


def _flaws_of_apache(line: BrokerLine, left: Snapshot) -> Iterator[str]:
    everything = [message for messages in left.values() for message in messages]
    if not everything or min(message.log_offset for message in everything) == 0:
        yield "PocketMQ removed nothing"
    yield from serving.flaws_in_queues(line, left)
    yield from serving.flaws_by_id(line, everything)
    yield from serving.flaws_by_key(line, everything)


def _wait_for_removal(trial: Trial, line: BrokerLine) -> None:
    trial.say("waiting for Apache to remove old files, a minute or two")
    begin = line.min_offset("Orders", 0)
    deadline = time.monotonic() + CLEAN_S
    while line.min_offset("Orders", 0) == begin:
        assert time.monotonic() < deadline, f"Apache removed nothing within {CLEAN_S} s"
        time.sleep(0.5)


def _hours() -> str:
    """This hour and the next, in the form of Apache's setting of when files may be deleted."""
    now = datetime.now()
    return ";".join(f"{moment:%H}" for moment in (now, now + timedelta(hours=1)))


SCENARIOS: Final = (Scenario("oldest files deleted", (SOUND_OURS, APACHE_SERVES, SOUND_APACHE, OURS_READS), _run),)
