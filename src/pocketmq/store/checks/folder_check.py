"""What lies in a store's folder and does not belong there. It is told and never touched.

A name is known when some release of RocketMQ, or PocketMQ, makes it. What is inside of RocketMQ's own folders that PocketMQ does
not read (timers, compaction, RocksDB) is not looked at.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from pocketmq.files import Files
from pocketmq.store.checks.findings import Finding, Kind
from pocketmq.store.checks.table_check import is_table
from pocketmq.store.index_shape import list_index_files
from pocketmq.store.layout import CONFIG, INDEX, LOG, QUEUES, StoreLayout

STAGING: Final = "rebuild"
"""Where a rebuild makes new files before they take the place of the old ones."""

_READ_BY_US: Final = (LOG, QUEUES, INDEX, CONFIG, "checkpoint", "abort", "lock", "broker.conf", STAGING)
_ROCKETMQS_OWN: Final = (
    "abort.bak",
    "batchconsumequeue",
    "brokerIdentity",
    "compaction",
    "consumequeue_ext",
    "controller",
    "epochFileCheckpoint",
    "rdb",
    "timerlog",
    "timerwheel",
    "transaction",
)
_CONFIG_OWN: Final = ("broker.properties", "consumerOffsets", "subscriptionGroups", "timercheck", "topics")
"""What RocketMQ keeps in config/ that is no table of JSON."""


def find_foreign(files: Files, layout: StoreLayout) -> Iterator[Finding]:
    """Things in the folders that nobody knows; those below consumequeue are the queues' business."""
    folder = layout.folder
    for name in files.list(folder):
        if name not in _READ_BY_US and name not in _ROCKETMQS_OWN and not name.startswith("timerwheel."):
            yield foreign(layout, folder / name)
    known_log = {log_file.path.name for log_file in layout.log_files}
    for name in files.list(folder / LOG):
        if name not in known_log:
            yield foreign(layout, folder / LOG / name)
    known_index = {path.name for path in list_index_files(files, folder / INDEX)}
    for name in files.list(folder / INDEX):
        if name not in known_index:
            yield foreign(layout, folder / INDEX / name)
    for name in files.list(folder / CONFIG):
        if not (is_table(name) or name in _CONFIG_OWN or name.endswith((".tmp", ".damaged"))):
            yield foreign(layout, folder / CONFIG / name)


def foreign(layout: StoreLayout, path: Path) -> Finding:
    return Finding(Kind.FOREIGN, layout.name_of(path), "this does not belong to the store, and is left alone")
