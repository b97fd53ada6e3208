"""Where new files are made before they take the places of old ones, and how they do.

    rebuild/consumequeue/…, rebuild/index/…      in the store's own folder, so that a rename moves them
         │ each queue file: renamed over the old one; old ones without a successor go after that
         └ index files: the old ones go, newest first; then the new ones come, oldest first

After a crash in between, each queue has whole files, old or new, that agree wherever both were right. The index is a beginning of
the old one or of the new one, and grows from there. Nothing is ever deleted that does not have one of our names.
"""

from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from pocketmq.errors import StoreError
from pocketmq.files import Files, walk
from pocketmq.store.checks.folder_check import STAGING
from pocketmq.store.index_shape import list_index_files
from pocketmq.store.layout import INDEX, QUEUES, StoreLayout
from pocketmq.store.queue_entries import list_queue_files


class Staging:
    """The folder of a rebuild."""

    def __init__(self, files: Files, layout: StoreLayout) -> None:
        self._files = files
        self._layout = layout
        self.folder = layout.folder / STAGING

    def clear(self) -> None:
        """Remove what an earlier rebuild left. StoreError when there is something else, which stays."""
        if self._files.status(self.folder) is None:
            return
        paths = list(walk(self._files, self.folder))
        strangers = [path for path in paths if not self._is_ours(path)]
        if strangers:
            raise StoreError(
                f"{strangers[0]} was not made by a rebuild, and {self.folder} is where one works. Move it away first"
            )
        for path in paths:
            self._files.unlink(path)
        self._remove_folders(self.folder)

    def _is_ours(self, path: Path) -> bool:
        top = path.relative_to(self.folder).parts[0]
        if top == QUEUES:
            return any(path == file.path for file in list_queue_files(self._files, path.parent))
        return top == INDEX and path in list_index_files(self._files, path.parent)

    def _remove_folders(self, folder: Path) -> None:
        for name in self._files.list(folder):
            self._remove_folders(folder / name)
        self._files.remove_dir(folder)

    def move_queue(self, topic: str, queue_id: int) -> int:
        """Let the new files of a queue take their places; how many old ones had no successor."""
        source = self.folder / QUEUES / topic / str(queue_id)
        target = self._layout.queue_folder / topic / str(queue_id)
        self._files.make_dir(target)
        new = [file.path.name for file in list_queue_files(self._files, source)]
        for name in new:
            self._files.replace(source / name, target / name)
        old = [file.path for file in list_queue_files(self._files, target) if file.path.name not in new]
        for path in old:
            self._files.unlink(path)
        self._files.sync_dir(target)
        return len(old)

    def keep_queues(self, topics: Collection[str]) -> None:
        """The names of folders that were made for queues of these topics are safe after this."""
        for topic in sorted(topics):
            self._files.sync_dir(self._layout.queue_folder / topic)
        if topics:
            self._files.sync_dir(self._layout.queue_folder)
            self._files.sync_dir(self._layout.folder)

    def move_index(self) -> int:
        """Let the new index files take the place of the old ones, for good; how many there are."""
        for path in reversed(list_index_files(self._files, self._layout.index_folder)):
            self._files.unlink(path)
        self._files.make_dir(self._layout.index_folder)
        self._files.sync_dir(self._layout.index_folder)
        new = list_index_files(self._files, self.folder / INDEX)
        for path in new:
            self._files.replace(path, self._layout.index_folder / path.name)
            self._files.sync_dir(self._layout.index_folder)
        self._files.sync_dir(self._layout.folder)
        return len(new)

    def discard(self) -> None:
        """Clear as far as possible: called when something else went wrong, which must be told instead."""
        with suppress(OSError, StoreError):
            self.clear()
