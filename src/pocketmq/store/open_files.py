"""A bounded set of open files: ten thousand queues must not mean ten thousand descriptors.

The file used longest ago is closed first. What was written, and which names were made or removed, is remembered until somebody
takes it to have it synced: a write that failed half way has not forgotten the half that needs a sync.

Names are plain texts, as a look-up is made for every read and a `Path` costs more than the read. Owned by the store's thread;
the sync thread opens its own.
"""

from collections import OrderedDict
from contextlib import suppress
from pathlib import Path

from pocketmq.files import File, Files


class OpenFiles:
    def __init__(self, files: Files, most: int) -> None:
        self._files = files
        self._most = max(1, most)
        self._open: OrderedDict[str, File] = OrderedDict()
        self._written: set[str] = set()
        self._renamed: set[str] = set()
        self.doubts_names = False
        """Whether a file that is found may have been made by a process that was killed before it synced the name."""

    def __len__(self) -> int:
        return len(self._open)

    def get(self, name: str) -> File:
        """The file of that name, which must exist."""
        file = self._open.get(name)
        if file is None:
            return self._remember(name, self._files.open(Path(name)))
        self._open.move_to_end(name)
        return file

    def make(self, name: str, size: int) -> File:
        """The file of that name to write to; made, or brought to `size` with zeros, when it is missing or shorter."""
        self._written.add(name)
        if self.doubts_names:
            self._renamed.add(name)
        path = Path(name)
        if name in self._open:
            status = self._files.status(path)
            if status is not None and status.size >= size:
                return self.get(name)
            # It was removed or cut by another program: what is written to a removed file would vanish with this process.
            self._open.pop(name).close()
        file = self._create(path)
        try:
            if file.size() < size:
                self._renamed.add(name)
                file.truncate(size)
        except OSError:
            file.close()
            raise
        return self._remember(name, file)

    def _create(self, path: Path) -> File:
        try:
            return self._files.open(path, create=True)
        except FileNotFoundError:
            self._files.make_dir(path.parent)
            return self._files.open(path, create=True)

    def unlink(self, name: str) -> None:
        """Remove the file of that name; harmless when it is gone already."""
        file = self._open.pop(name, None)
        if file is not None:
            file.close()
        with suppress(FileNotFoundError):
            self._files.unlink(Path(name))
        self._written.discard(name)
        self._renamed.add(name)

    def take_written(self) -> list[Path]:
        """The files that were written since the last call: their bytes are not safe yet."""
        if not self._written:
            return []
        written, self._written = self._written, set()
        return [Path(name) for name in sorted(written)]

    def take_renamed(self) -> list[Path]:
        """The files that were made or removed since the last call: their names are not safe yet."""
        renamed, self._renamed = self._renamed, set()
        return [Path(name) for name in sorted(renamed)]

    def close(self) -> None:
        while self._open:
            self._open.popitem()[1].close()

    def _remember(self, name: str, file: File) -> File:
        self._open[name] = file
        if len(self._open) > self._most:
            self._open.popitem(last=False)[1].close()
        return file
