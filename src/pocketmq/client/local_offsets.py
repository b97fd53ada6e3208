"""Local offsets: how far a broadcasting consumer is, in a file of its own, as RocketMQ writes it.

    ~/.rocketmq_offsets/<client id>/<group>/offsets.json      and offsets.json.bak, what was saved before

    {
        "offsetTable":{{
                "brokerName":"broker-a",
                "queueId":3,
                "topic":"Orders"
            }:12
        }
    }

Broadcasting consumers of one machine have the same client id unless they are given instance names, and so the same file. A
save therefore changes only the queues it names and leaves all others as they are; but two such consumers of one group still
overwrite each other's progress, in Java as here.

Reads and writes wait for the disk: not on the loop's thread.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pocketmq.errors import InvalidSetting, StoreError
from pocketmq.files import Files
from pocketmq.model.queue import MessageQueue
from pocketmq.protocol.bodies.offsets import LocalOffsets
from pocketmq.protocol.java_json import read_body, write_pretty_json
from pocketmq.store.tables import TABLE_LIMITS, Tables

FOLDER: Final = ".rocketmq_offsets"
"""In the home folder of the user."""
FILE: Final = "offsets.json"


def offsets_folder(root: Path, client_id: str, group: str) -> Path:
    """Where a consumer's file is. InvalidSetting for an id that would lead elsewhere."""
    for word, name in (("client id", client_id), ("group", group)):
        if not name or name in (".", "..") or "/" in name or "\0" in name:
            raise InvalidSetting(f"{word} {name!r} cannot be the name of a folder for local offsets; choose another")
    return root / client_id / group


class LocalOffsetFile:
    """The file of one consumer. StoreDamaged when neither it nor its backup can be read; StoreError when the disk refuses."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._folder = folder
        self._tables = Tables(files, folder)

    def load(self) -> dict[MessageQueue, int]:
        """What was saved last, or before that if the last is damaged; nothing when nothing ever was."""
        found = self._tables.load(FILE, _parse)
        return {} if found is None else dict(found.offset_table)

    def save(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Remember these; on the disk when this returns."""
        if not offsets:
            return
        self._make_folders()
        self._tables.save(FILE, write_pretty_json(LocalOffsets(self.load() | dict(offsets))))

    def _make_folders(self) -> None:
        """The folders of the user, the client and the group, each safe before the next: else a crash could lose the file."""
        missing = [folder for folder in (self._folder, *self._folder.parents) if self._files.status(folder) is None]
        try:
            for folder in reversed(missing):
                self._files.make_dir(folder)
                self._files.sync_dir(folder.parent)
        except OSError as error:
            raise StoreError(f"the folder {self._folder} for local offsets cannot be made: {error.strerror}") from error


def _parse(data: bytes) -> LocalOffsets:
    return read_body(LocalOffsets, data, TABLE_LIMITS)
