"""The base of all bodies.

A body is a value: frozen, compared by its fields, changed with `msgspec.structs.replace`. Field names are Python's, wire names
are derived from them; sets and lists of the wire are tuples. A field with None as its default is left out of the JSON while
it is None, as Java leaves out null; every other field is always written, with the same default that Java has.

Which state of a table somebody has seen.

Names with texts: configuration that the name server keeps, and what a broker tells about itself.
"""

from typing import Any

import msgspec

from pocketmq.protocol.fields import Int64

EMPTY_MAP: Any = msgspec.field(default_factory=dict)
"""The default of a field that is a dict: each body gets its own."""


class Body(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One JSON object of the wire, or of a file."""


class DataVersion(Body, frozen=True):
    """Equal in all three numbers means the same table. Time and counter both change, or a change may go unnoticed."""

    counter: Int64 = 0
    state_version: Int64 = 0
    timestamp: Int64 = 0

    def next_version(self, now_ms: int, state_version: int = 0) -> "DataVersion":
        """The version after a change that is made now."""
        return DataVersion(self.counter + 1, state_version, now_ms)


class KVTable(Body, frozen=True):
    """One namespace of the name server, or a broker's runtime info."""

    table: dict[str, str] = EMPTY_MAP


class KVConfigFile(Body, frozen=True):
    """The name server's file kvConfig.json: namespace → key → value."""

    config_table: dict[str, dict[str, str]] = EMPTY_MAP
