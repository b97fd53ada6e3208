"""Names with texts: configuration that the name server keeps, and what a broker tells about itself."""

from pocketmq.protocol.bodies.body import EMPTY_MAP, Body


class KVTable(Body, frozen=True):
    """One namespace of the name server, or a broker's runtime info."""

    table: dict[str, str] = EMPTY_MAP


class KVConfigFile(Body, frozen=True):
    """The name server's file kvConfig.json: namespace → key → value."""

    config_table: dict[str, dict[str, str]] = EMPTY_MAP
