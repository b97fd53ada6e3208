"""What RocketMQ's users have, and which checks show it: the rows and the columns of the summary."""

from collections.abc import Mapping
from typing import Final, NamedTuple

JAVA: Final = "java"
PYTHON: Final = "python"
GUEST: Final = "guest"
"""A client of another language."""
SPARK: Final = "spark"


class Column(NamedTuple):
    """A client with a broker: `name` is its column in the table of `section`."""

    title: str
    kind: str
    section: str
    name: str


class Where(NamedTuple):
    """Checks in another table than the column's own."""

    section: str
    name: str
    pattern: str


class Feature(NamedTuple):
    """`checks`: for each kind of column, or for one column by its title, a pattern of `scenario: check`.

    `why` is the reason of all cells without a check.
    """

    name: str
    checks: Mapping[str, str | Where]
    why: str = ""


COLUMNS: Final = (
    Column("Java 5.5 → PocketMQ", JAVA, "Clients", "5.5.0"),
    Column("Java 5.3 → PocketMQ", JAVA, "Clients", "5.3.3"),
    Column("Java 4.9 → PocketMQ", JAVA, "Clients", "4.9.7"),
    Column("Python → Apache 5.5", PYTHON, "Python client", "5.5.0"),
    Column("Python → Apache 5.3", PYTHON, "Python client", "5.3.3"),
    Column("Python → Apache 4.9", PYTHON, "Python client", "4.9.7"),
    Column("Python → PocketMQ", PYTHON, "Python client", "PocketMQ"),
    Column("Go → PocketMQ", GUEST, "Other languages", "Go 2.1.2"),
    Column("C++ → PocketMQ", GUEST, "Other languages", "C++ 1.2 (PyPI rocketmq 0.4.4)"),
    Column("Node → PocketMQ", GUEST, "Other languages", "Node (ali-ons 3.12.0)"),
    Column("Spark → Apache 5.3", SPARK, "Spark", "5.3.3"),
    Column("Spark → Apache 4.9", SPARK, "Spark", "4.9.7"),
)

_J55, _J53, _P53, _POURS = "Java 5.5 → PocketMQ", "Java 5.3 → PocketMQ", "Python → Apache 5.3", "Python → PocketMQ"
_NOT_IN_CLIENT: Final = "this client does not have the feature, or its test program does not use it"
_ALONE: Final = "this does not involve two programs: "

FEATURES: Final = (
    # what the table of RocketMQ's features has
    Feature("push consumption (long polling)", {JAVA: "a push consumer", PYTHON: "consuming: a push|restarted|begins|batches acknow", GUEST: "consumes: every"}, _NOT_IN_CLIENT),
    Feature("pull and lite pull", {JAVA: "a pull consumer|lite pull", PYTHON: "pulling:"}, _NOT_IN_CLIENT),
    Feature("POP consumption", {_J55: Where("POP", "PocketMQ, Java 5.5.0", "."), _J53: Where("POP", "PocketMQ, Java 5.3.3", "."), PYTHON: "pop: (?!a broker of)"}, "4.9 does not have it; " + _NOT_IN_CLIENT),
    Feature("order: one key in one queue, one reader", {JAVA: "ordered consumption", PYTHON: "order:|sharding key", GUEST: "in order"}, _NOT_IN_CLIENT),
    Feature("retries with back-off, dead letters", {JAVA: "failed messages|broker chooses|gives up", PYTHON: "retries:|too often", GUEST: "delivered again|dead letter"}, _NOT_IN_CLIENT),
    Feature("delay levels", {JAVA: "delayed messages", PYTHON: "delays: delay levels", GUEST: "a delay level"}, _NOT_IN_CLIENT),
    Feature("messages due at any time, and their recall", {JAVA: "timed messages", PYTHON: "delays: (timed|a timed|a time|times)"}, "4.9 does not have timed messages; " + _NOT_IN_CLIENT),
    Feature("transactions with check-back", {JAVA: "transactions", PYTHON: "transactions:", GUEST: "transactions"}, _NOT_IN_CLIENT),
    Feature("filter by tags", {JAVA: "a push consumer", PYTHON: "filters: tags", GUEST: "by tags"}, _NOT_IN_CLIENT),
    Feature("filter by SQL92", {JAVA: "SQL92", PYTHON: "filters: (SQL92|a push|a filter)", GUEST: "SQL92"}, _NOT_IN_CLIENT),
    Feature("batches", {JAVA: ": batches", PYTHON: "a batch is one|lingers", GUEST: "a batch"}, "the C++ client sends a batch as one message, and Apache's broker also stores it as one; " + _NOT_IN_CLIENT),
    Feature("compression", {JAVA: "compressed", PYTHON: "are compressed", GUEST: "large bodies"}, _NOT_IN_CLIENT),
    Feature("broadcasting", {JAVA: "broadcasting", PYTHON: "broadcasting", GUEST: "broadcasting"}, _NOT_IN_CLIENT),
    Feature("consumer flow control", {PYTHON: "flow control"}, "only the client is involved"),
    Feature("producer flow control", {}, "a broker cannot be made busy on demand: the tests of PocketMQ's broker stall its disk instead"),
    Feature("sharing of queues, all six strategies", {JAVA: "two members", PYTHON: "sharing:", GUEST: "shares a group", _J53: Where("Mixed groups", "PocketMQ", "Java"), _P53: Where("Mixed groups", "5.3.3", "Java")}, _NOT_IN_CLIENT),
    Feature("offsets: queried, reset, cloned; seek by time", {JAVA: "offsets, times", PYTHON: "offsets: (small|a reset|one group)|assigned"}, _NOT_IN_CLIENT),
    Feature("messages by key, id and time", {JAVA: "by key and id", PYTHON: "are found by"}, _NOT_IN_CLIENT),
    Feature("message traces", {JAVA: "message traces", PYTHON: "traces show"}, _NOT_IN_CLIENT),
    Feature("metrics of clients", {PYTHON: "metrics and hooks"}, "every client has its own implementation"),
    Feature("signed requests (ACL): accepted and refused", {JAVA: "signed requests", _J53: Where("Security", "PocketMQ", "signatures: Java"), _P53: Where("Security", "5.3.3", "signatures: Python"), _POURS: Where("Security", "PocketMQ", "signatures: Python")}, "tested with 5.3, which defines the rules"),
    Feature("TLS, with the certificate checked", {_J53: Where("Security", "PocketMQ", "TLS: Java"), _P53: Where("Security", "5.3.3", "TLS: Python"), _POURS: Where("Security", "PocketMQ", "TLS: Python")}, "tested with 5.3"),
    Feature("replication", {}, "no client takes part: see Replicas; there are no elections"),
    Feature("dashboard, embedded form, asyncio, types, wheels, schemas", {}, _ALONE + "PocketMQ's own tests cover it"),
    Feature("Spark: batch and stream, read and write, without a JAR; effectively once", {SPARK: "."}, "only the Spark connector has this"),
    # what else brokers and clients do
    Feature("routes, topics created by sending", {JAVA: "routes of existing", PYTHON: "creates it by the template"}, _NOT_IN_CLIENT),
    Feature("sends of every kind: plain, chosen queue, at once, one-way", {JAVA: ": sending", PYTHON: "sending: (a message|queues|a chosen|many|one-way|the blocking)", GUEST: "sends:"}, _NOT_IN_CLIENT),
    Feature("refused sends", {JAVA: "refused sends", PYTHON: "refused: a missing"}, _NOT_IN_CLIENT),
    Feature("request and reply", {JAVA: "requests and replies", PYTHON: "a request gets"}, _NOT_IN_CLIENT),
    Feature("namespaces", {JAVA: "in a namespace", PYTHON: "a namespace keeps"}, _NOT_IN_CLIENT),
    Feature("new queues of a topic are read from their start", {PYTHON: "gets later"}, "only PocketMQ's client has this"),
    Feature("subscribe, unsubscribe, pause, resume while running", {PYTHON: "while it runs"}, _NOT_IN_CLIENT),
    Feature("members, running info, direct consumption", {PYTHON: "a running consumer"}, "mqadmin checks this for Java's members: see its table"),
    Feature("topics, groups, settings, name server's values", {PYTHON: "administration:"}, "mqadmin does this for Java: see its table"),
    Feature("the VIP port", {JAVA: "VIP port"}, "PocketMQ's client does not use it; Java's client uses it only with an option"),
    Feature("binary headers", {JAVA: "^binary headers"}, "only the Java client can send them"),
)  # fmt: skip
