"""The base of all bodies, data versions of tables, and key-value tables.

A body is a frozen value; `msgspec.structs.replace` changes a copy. Wire names are derived from Python's field names; sets and lists of the
wire are tuples. A None field with that default is omitted, as in Java; all other fields are always written, with Java's
defaults.
"""

from typing import Any

import msgspec

from pocketmq.protocol.fields import Int64

EMPTY_MAP: Any = msgspec.field(default_factory=dict)
"""The default of a dict field: a new dict for each body."""


class Body(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One JSON object of the wire, or of a file."""


class DataVersion(Body, frozen=True):
    """The version of a table. Versions are equal if all three numbers are; each change changes time and counter."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        """The version after a change at this time."""
        return DataVersion(self.counter + 1, state_version, now_ms)


class KVTable(Body, frozen=True):
    """One namespace of the name server, or a broker's runtime info."""

    table: dict[str, str] = EMPTY_MAP


class KVConfigFile(Body, frozen=True):
    """The name server's file kvConfig.json: namespace → key → value."""

    config_table: dict[str, dict[str, str]] = EMPTY_MAP
