"""Connector options that a user sets for a pipeline by --option, and where each of them applies.

given ──┬─ connection ──► all reads, writes and queries to brokers
        ├─ reads ───────► reads
        ├─ writes ──────► writes
        └─ set by the pipeline, unused by it, or unknown ──► refused, before Spark starts
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Final

from pocketmq.errors import InvalidSetting
from pocketmq.spark.options.options import OptionTable, Use
from pocketmq.spark.options.read_options import READ_OPTIONS
from pocketmq.spark.options.write_options import WRITE_OPTIONS

_FLAGS: Final = {
    "rocketmq.namesrv.addr": "--namesrv, or --target for the other cluster,",
    "subscribe": "--topic",
    "subscribePattern": "--topic",
    "assign": "--topic",
    "startingOffsets": "--starting or --starting-offsets",
    "startingTimestamp": "--since",
    "endingOffsets": "--ending-offsets",
    "endingTimestamp": "--until",
    "maxOffsetsPerTrigger": "--max-messages",
    "onDataLoss": "--on-data-loss",
    "failOnDataLoss": "--on-data-loss",
    "groupId": "--group",
}
"""The flag of the pipeline for an option."""
_RIVALS: Final = {
    "subscribe": ("subscribePattern", "assign"),
    "assign": ("subscribe", "subscribePattern"),
    "onDataLoss": ("failOnDataLoss",),
    "maxPartitions": ("minPartitions", "maxRecordsPerPartition"),
}
"""Options that exclude others."""
_ONCE: Final = ("topic", "writeId", "writeBatch", "deliveryGuarantee", "reservedProperties")
"""Options that a pipeline sets for each of its writes, so that they are effectively once."""


def of_connection(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Options of the connection. `own` are those that the pipeline sets, here as in the other functions."""
    _refuse_unknown(given)
    chosen = _chosen(given, READ_OPTIONS, own)
    return {**own, **{name: text for name, text in chosen.items() if READ_OPTIONS.named(name, Use.ALL)}}


def of_reads(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Options for a read."""
    _refuse_unknown(given)
    return {**own, **_chosen(given, READ_OPTIONS, [*own, *(rival for name in own for rival in _RIVALS.get(name, ()))])}


def of_writes(given: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """Options for a write."""
    _refuse_unknown(given)
    return {**own, **_chosen(given, WRITE_OPTIONS, [*own, *_ONCE])}


def check_used(given: Mapping[str, str], *uses: Mapping[str, str]) -> None:
    """InvalidSetting for an option that is in none of `uses`, and so would have no effect."""
    for key in given:
        if not any(key in use for use in uses):
            what = "reads" if READ_OPTIONS.named(key) is not None else "writes"
            raise InvalidSetting(
                f"the option {key} has no effect: it applies to {what} of topics, which this pipeline does not do"
            )


def _chosen(given: Mapping[str, str], table: OptionTable, reserved: Collection[str]) -> dict[str, str]:
    found = {}
    for key, text in given.items():
        name = table.named(key)
        if name is not None and name in reserved:
            advice = f"use {_FLAGS[name]}" if name in _FLAGS else "the pipeline sets it itself"
            raise InvalidSetting(f"the option {name} cannot be set: {advice}")
        if name is not None:
            found[key] = text
    return found


def _refuse_unknown(given: Mapping[str, str]) -> None:
    for key, text in given.items():
        if READ_OPTIONS.named(key) is None and WRITE_OPTIONS.named(key) is None:
            near = get_close_matches(key.lower(), [option.name.lower() for option in WRITE_OPTIONS.options], 1, 0.8)
            is_of_writes = bool(near) and READ_OPTIONS.named(near[0]) is None
            table, use = (WRITE_OPTIONS, Use.BATCH_WRITE) if is_of_writes else (READ_OPTIONS, Use.BATCH)
            table.read({key: text}, use)  # raises with a hint
