"""What opening a store found and did, for the log and for whoever asks."""

from pathlib import Path

import msgspec


class RecoveryReport(msgspec.Struct):
    """What opening a store found and did."""

    clean: bool
    walked_from: int = 0
    log_end: int = 0
    records: int = 0
    cut: str = ""
    """Why the log was cut, with its offset; empty when it ended where nothing was written."""
    cut_bytes: int = 0
    """Bytes behind the cut that were not zero and are gone now."""
    rebuilt_queues: list[str] = []
    trimmed_queues: int = 0
    """Queues that had stale entries behind their end."""
    discarded_index_files: int = 0
    unplaced: int = 0
    """Records with an impossible topic, queue or queue offset; they stay in the log and enter no queue."""
    foreign: list[Path] = []
    seconds: float = 0.0

    def __str__(self) -> str:
        stop = "clean stop" if self.clean else "crash"
        text = f"after a {stop}: {self.records} records walked from {self.walked_from}, the log ends at {self.log_end}"
        if self.cut:
            text += f"; cut {self.cut} ({self.cut_bytes} bytes dropped)"
        if self.rebuilt_queues:
            text += f"; {len(self.rebuilt_queues)} queues rebuilt"
        if self.trimmed_queues:
            text += f"; {self.trimmed_queues} queues trimmed"
        if self.discarded_index_files:
            text += f"; {self.discarded_index_files} index files to be built anew"
        if self.unplaced:
            text += f"; {self.unplaced} records fit into no queue"
        if self.foreign:
            text += f"; {len(self.foreign)} foreign files left alone"
        return text
