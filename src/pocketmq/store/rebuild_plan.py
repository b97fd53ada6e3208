"""What a rebuild would make new: the files of a store that are derived, and understood."""

from pathlib import Path

import msgspec

from pocketmq.errors import InvalidName, InvalidSetting, StoreError
from pocketmq.files import Files
from pocketmq.model.names import LMQ_PREFIX, parse_topic
from pocketmq.store.index_shape import list_index_files
from pocketmq.store.layout import LOG, StoreLayout
from pocketmq.store.log_scan import written_bytes
from pocketmq.store.queue_entries import QueueFile, list_queue_files, list_queue_ids
from pocketmq.store.queues import QueueKey


class RebuildPlan(msgspec.Struct, frozen=True):
    """The files that a rebuild makes new or removes."""

    queue_files: list[QueueFile]
    index_files: list[Path]
    log_bytes: int


def plan_rebuild(files: Files, layout: StoreLayout) -> RebuildPlan:
    """What a rebuild would replace. StoreError without a log, InvalidSetting when it is not known how an index file looks."""
    if not layout.log_files:
        raise StoreError(f"there is no log in {layout.folder / LOG}, so there is nothing to rebuild from")
    if layout.index_shape is None:
        raise InvalidSetting(
            f"how many slots and entries the files in {layout.index_folder} have cannot be told from them, and new ones "
            "must have the same. Give index_slots and index_entries (maxHashSlotNum, maxIndexNum)"
        )
    queue_files = [
        file
        for topic, queue_id in list_queues(files, layout)
        for file in list_queue_files(files, layout.queue_folder / topic / str(queue_id))
    ]
    index_files = list_index_files(files, layout.index_folder)
    return RebuildPlan(queue_files, index_files, written_bytes(files, layout.log_files))


def list_queues(files: Files, layout: StoreLayout) -> list[QueueKey]:
    """The queues on the disk that a rebuild understands."""
    topics = [name for name in files.list(layout.queue_folder) if is_topic(name) and not name.startswith(LMQ_PREFIX)]
    return [(topic, queue_id) for topic in topics for queue_id in list_queue_ids(files, layout.queue_folder / topic)]


def is_topic(name: str) -> bool:
    """Whether a name can be a topic's, and so a folder's."""
    try:
        parse_topic(name)
    except InvalidName:
        return False
    return True
