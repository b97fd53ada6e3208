"""Both sides take a lock on the first byte of the same file, so the second one is refused."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from conformance.apache import ApacheBroker, ApacheRefused
from conformance.report import Scenario, Trial
from conformance.store.drafts import sample, topics_for
from conformance.store.file_sizes import SMALL
from conformance.store.our_store import OurStore, rebuild, verify
from conformance.store.snapshots import Snapshot, differences
from conformance.store.tables import write_tables
from pocketmq.errors import StoreLocked

APACHE_REFUSED: Final = "Apache does not start while PocketMQ owns the folder"
NOTHING_LOST: Final = "… and its attempt loses nothing: PocketMQ continues, stops, and finds every message again"
REPAIRED: Final = "… store rebuild corrects what its attempt leaves in the key index"
OURS_REFUSED: Final = "PocketMQ does not open a folder that Apache owns"
UNTOUCHED: Final = "… and its attempt changes no file"


def _run(trial: Trial) -> None:
    folder = trial.folder / "store"
    write_tables(folder, topics_for(trial.version))
    _check_apache_is_refused(trial, folder)
    with _apache(trial):
        before = _files(folder)
        trial.expect(OURS_REFUSED, _flaws_of_our_start(folder))
        after = _files(folder)
        changed = [path for path in before | after if before.get(path) != after.get(path)]
        trial.expect(UNTOUCHED, [f"{path} was changed" for path in changed])


def _check_apache_is_refused(trial: Trial, folder: Path) -> None:
    """A broker that is refused has recovered the store by then: Apache takes the lock later than it reads the files."""
    drafts = sample(trial.version, SMALL.largest_body)
    with OurStore(folder, SMALL) as ours:
        written = ours.append(drafts)
        trial.expect(APACHE_REFUSED, _flaws_of_apache_start(trial))
        written += ours.append(drafts)
    expected: Snapshot = {}
    for message, one in zip(written, [*drafts, *drafts], strict=True):
        if one.enters_queue:
            expected.setdefault((one.topic, one.queue_id), []).append(message)
    flaws = verify(folder, SMALL, with_index=False)
    with OurStore(folder, SMALL) as ours:
        trial.say(f"store opened {ours.report}")
        flaws += differences(expected, ours.read(expected))
    trial.expect(NOTHING_LOST, flaws)
    trial.expect(REPAIRED, [*rebuild(folder, SMALL), *verify(folder, SMALL)])


def _flaws_of_apache_start(trial: Trial) -> Iterator[str]:
    try:
        with _apache(trial):
            yield "it started"
    except ApacheRefused as refused:
        trial.say(f"Apache says: {refused}")
        if "Lock failed" not in str(refused):
            yield f"it did not start, for another reason: {refused}"


def _flaws_of_our_start(folder: Path) -> Iterator[str]:
    try:
        with OurStore(folder, SMALL):
            yield "it opened the store"
    except StoreLocked:
        return


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Names, sizes and inodes of all files that only the owner of a store replaces."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_size, path.stat().st_ino)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != "config"
    }


def _apache(trial: Trial) -> ApacheBroker:
    return ApacheBroker(trial.version, trial.folder, SMALL.apache_settings(), trial.say)


SCENARIOS: Final = (Scenario("one owner", (APACHE_REFUSED, NOTHING_LOST, REPAIRED, OURS_REFUSED, UNTOUCHED), _run),)
