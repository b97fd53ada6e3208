"""The rows of an archive: which columns of a topic are kept, and the folders that their times put them into."""

from typing import Final

from pocketmq.pipelines.archive.layout import Slot
from pocketmq.pipelines.libraries import DataFrame, functions
from pocketmq.spark.schema import Name, type_of

NEEDED: Final = (Name.TOPIC, Name.BROKER_NAME, Name.QUEUE_ID, Name.QUEUE_OFFSET, Name.STORE_TIMESTAMP)
"""Without them nobody knows what is in a file."""
KEPT: Final = (*NEEDED, Name.KEYS, Name.TAGS, Name.VALUE, Name.BORN_TIMESTAMP)


def columns_of(*, properties: bool) -> tuple[Name, ...]:
    """What is read of a topic. Ids are among the properties, whose map is what costs most to decode."""
    return (*KEPT, Name.PROPERTIES) if properties else KEPT


def schema_of(*, properties: bool) -> str:
    """The same, as Spark is told."""
    return ", ".join(f"{name} {type_of(name)}" for name in columns_of(properties=properties))


def lake_schema(slot: Slot, *, properties: bool) -> str:
    """What is read of the files of a lake; folders are texts, so that a topic called 007 stays one."""
    folders = [name for name in slot.columns if name != Name.TOPIC]
    return ", ".join([schema_of(properties=properties), *(f"{name} string" for name in folders)])


def archive_rows(messages: DataFrame, slot: Slot) -> DataFrame:
    """Messages with the columns that name their folders, by the time at which brokers stored them, in UTC."""
    stored = functions.col(Name.STORE_TIMESTAMP)
    # Casts: a formatter of dates costs more for each row.
    times = {
        "day": stored.cast("date").cast("string"),
        "hour": functions.lpad(functions.hour(stored).cast("string"), 2, "0"),
    }
    return messages.withColumns({name: times[name] for name in slot.columns if name in times})
