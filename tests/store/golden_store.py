"""Stores of Apache RocketMQ, restored as folders with every file at its real size.

    store/VERSION/clean     after a clean stop
    store/VERSION/live      copied while the broker was running: as after a crash

Captured files end after their last byte that is not zero; `manifest.json` has their sizes. A file with long holes is kept as
NAME.extents.json: where which bytes are.
"""

import json
from pathlib import Path

from tests.golden import GOLDEN

from pocketmq.store.settings import StoreSettings

STORES = [(version, kind) for version in ("5.3.3", "4.9.7") for kind in ("clean", "live")]
"""What was captured; for `pytest.mark.parametrize(("version", "kind"), STORES)`."""


def restore(version: str, kind: str, folder: Path) -> StoreSettings:
    """Restore the captured store in `folder`; returns its settings."""
    captured = GOLDEN / "store" / version / kind
    sizes: dict[str, int] = json.loads((captured / "manifest.json").read_text())
    for name, size in sizes.items():
        _restore_file(captured / name, folder / name, size)
    return StoreSettings(
        folder=folder, log_file_bytes=32 * 1024, queue_file_entries=20, index_slots=100, index_entries=400
    )


def _restore_file(source: Path, target: Path, size: int) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    extents = source.with_name(source.name + ".extents.json")
    with target.open("wb") as file:
        if extents.exists():
            for extent in json.loads(extents.read_text())["extents"]:
                file.seek(extent["at"])
                file.write(bytes.fromhex(extent["hex"]))
        else:
            file.write(source.read_bytes())
        file.truncate(size)


def read_log(folder: Path, file_bytes: int, offset: int, size: int) -> bytes:
    """Bytes of a store's log, up to the end of the file that contains `offset`."""
    start = offset // file_bytes * file_bytes
    with (folder / "commitlog" / f"{start:020d}").open("rb") as file:
        file.seek(offset - start)
        return file.read(size)
