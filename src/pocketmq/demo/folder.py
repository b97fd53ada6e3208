"""Where a demo keeps everything, so that one that was cut off can go on.

    DIR/demo.json      the day: seed, date, how many orders
       demo.lock       held while a demo runs, so that no other one empties the folder
       broker/         topics and groups
       checkpoints/    how far Spark is
       lake/           orders and revenue, as Parquet
       revenue.png     the plot
       report.json     what came of it
       spark.log       what Spark and the broker said

A folder that holds anything else is left alone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.demo.shop import Day
from pocketmq.errors import UsageError, WrongState
from pocketmq.files import DiskFiles, remove_whole, write_atomically

DAY_FILE: Final = "demo.json"
LOCK_FILE: Final = "demo.lock"
OWN_NAMES: Final = frozenset(
    {DAY_FILE, f"{DAY_FILE}.tmp", LOCK_FILE, "broker", "checkpoints", "lake", "revenue.png", "report.json", "spark.log"}
)


class DemoFolder:
    """The folder of a demo."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = DiskFiles()

    @property
    def broker(self) -> Path:
        return self.path / "broker"

    @property
    def lake(self) -> Path:
        return self.path / "lake"

    @property
    def plot(self) -> Path:
        return self.path / "revenue.png"

    @property
    def report(self) -> Path:
        return self.path / "report.json"

    @property
    def log(self) -> Path:
        return self.path / "spark.log"

    def checkpoint(self, query: str) -> Path:
        return self.path / "checkpoints" / query

    @contextmanager
    def held(self) -> Iterator[None]:
        """For one demo at a time. WrongState while another one runs in it."""
        self._files.make_dir(self.path)
        with self._files.open(self.path / LOCK_FILE, create=True) as lock:
            if not lock.lock():
                raise WrongState(f"another demo runs in {self.path}: stop it first, or give another folder with --dir")
            yield

    def start_over(self, day: Day) -> None:
        """Empty it of an earlier demo, and note the day. It must be held."""
        self.refuse_strangers()
        names = [name for name in self._files.list(self.path) if name != LOCK_FILE]
        for name in sorted(names, key=lambda name: name == DAY_FILE):  # the day last: until then it is a demo's
            remove_whole(self.path / name)
        self._files.make_dir(self.path)
        write_atomically(self._files, self.path / DAY_FILE, msgspec.json.encode(day._asdict()))

    def resume(self) -> Day:
        """The day of the demo that was cut off. UsageError when there is none."""
        path = self.path / DAY_FILE
        if self._files.status(path) is None:
            raise UsageError(f"there is no demo in {self.path} to go on with: start one without --resume")
        try:
            return Day(**msgspec.json.decode(self._files.read(path), type=dict[str, int]))
        except (msgspec.MsgspecError, TypeError) as error:
            raise WrongState(f"{path} is damaged ({error}): start over without --resume") from None

    def refuse_strangers(self) -> None:
        """WrongState when something of somebody else is in it."""
        if strangers := sorted(set(self._files.list(self.path)) - OWN_NAMES):
            raise WrongState(
                f"{self.path} holds {strangers[0]}, which is not of a demo: give another folder with --dir, "
                "for this one would be emptied"
            )

    def make(self, path: Path) -> None:
        self._files.make_dir(path)

    def keep(self, path: Path, data: bytes) -> None:
        write_atomically(self._files, path, data)
