"""The base of all bodies.

A body is a value: frozen, compared by its fields, changed with `msgspec.structs.replace`. Field names are Python's, wire names
are derived from them; sets and lists of the wire are tuples. A field with None as its default is left out of the JSON while
it is None, as Java leaves out null; every other field is always written, with the same default that Java has.
"""

from typing import Any

import msgspec

EMPTY_MAP: Any = msgspec.field(default_factory=dict)
"""The default of a field that is a dict: each body gets its own."""


class Body(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One JSON object of the wire, or of a file."""
