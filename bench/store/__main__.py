"""Run the benchmarks of the store and print them as one table.

python -m bench.store                    all of them, in less than two minutes and 3 GiB
python -m bench.store append start       those whose name holds one of these words
python -m bench.store --full             as large as a store gets: 24 GiB of disk, about ten minutes
python -m bench.store --folder /data     on another disk than that of the temporary files
"""

import argparse
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from bench.store import appending, flatness, keys, memory, reading, starting, tools
from bench.store.apart import quiet
from bench.store.rows import Pace, Row, table_of
from bench.store.scale import FULL, GIB, QUICK, Scale

ROUNDS = 15
ROUND_MS = 20.0
WIDTH = 150

Section = Callable[[Path, Scale, Pace], Iterator[Row]]
SECTIONS: dict[str, Section] = {
    "append": appending.unsynced_rows,
    "batch": appending.batch_rows,
    "synced": appending.synced_rows,
    "read": reading.read_rows,
    "time": reading.time_rows,
    "index": keys.index_rows,
    "key": keys.look_up_rows,
    "start": starting.start_rows,
    "tools": tools.tool_rows,
    "queues": memory.queue_rows,
    "flat-queues": flatness.queue_rows,
    "flat-log": flatness.log_rows,
}


def main(arguments: Sequence[str] | None = None, *, quick: Scale = QUICK) -> None:
    parser = argparse.ArgumentParser("python -m bench.store", description="Benchmarks of the store.")
    parser.add_argument(
        "words", nargs="*", help=f"run the sections whose name holds one of these: {', '.join(SECTIONS)}"
    )
    parser.add_argument("--full", action="store_true", help="large logs and indexes: much disk, about ten minutes")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where the files are made")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds in which the candidates take turns")
    parser.add_argument("--round-ms", type=float, default=ROUND_MS, help="how long a candidate runs in one round")
    options = parser.parse_args(arguments)
    scale = FULL if options.full else quick
    chosen = [name for name in SECTIONS if not options.words or any(word in name for word in options.words)]
    if not chosen:
        parser.error(f"no section is called so; there are: {', '.join(SECTIONS)}")
    if options.rounds < 1:
        parser.error("at least one round is needed")
    if missing := missing_space(options.folder, scale):
        parser.error(missing)

    quiet()
    console = Console(width=WIDTH)
    pace = Pace(options.rounds, options.round_ms)
    rows = [row for name in chosen for row in run(name, options.folder, scale, pace, console)]
    title = f"store, {scale.name} · files on {file_system(options.folder)}"
    console.print(table_of(rows, title, pace))


def run(name: str, folder: Path, scale: Scale, pace: Pace, console: Console) -> list[Row]:
    """One section, in a folder that is gone afterwards."""
    with console.status(name), tempfile.TemporaryDirectory(prefix="pocketmq-bench-", dir=folder) as place:
        return list(SECTIONS[name](Path(place), scale, pace))


def missing_space(folder: Path, scale: Scale) -> str:
    """Why the run would not fit on the disk; empty when it does."""
    if not folder.is_dir():
        return f"{folder} is not a folder"
    free = shutil.disk_usage(folder).free
    if free >= scale.disk_bytes:
        return ""
    return (
        f"the {scale.name} run needs {scale.disk_bytes / GIB:.1f} GiB, and the disk of {folder} has {free / GIB:.1f} GiB "
        "free. Choose another disk with --folder" + (", or leave out --full" if scale is FULL else "")
    )


def file_system(folder: Path) -> str:
    """What kind of file system holds `folder`: on one in memory, syncs cost nothing."""
    where = folder.resolve()
    mounts = [line.split()[1:3] for line in Path("/proc/self/mounts").read_text("utf-8").splitlines()]
    found = [(len(place), kind) for place, kind in mounts if where.is_relative_to(place)]
    return max(found)[1] if found else "an unknown file system"


if __name__ == "__main__":
    main()
