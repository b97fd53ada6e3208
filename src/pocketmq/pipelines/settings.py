"""What pipelines are told: fields that a file may hold and the command line may override.

    JobSettings            where the cluster is, and where Spark runs
    └─ StreamSettings      which topics are read, from where, how much at once, and where its checkpoint is
       └─ … of a pipeline  what it does with them

A field is a key of the file and a flag of the command, both with `-` for `_`; its description is the help of both.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from pocketmq.pipelines.connector_options import of_connection, of_reads
from pocketmq.pipelines.setting_kinds import Span

DEFAULT_NAME_SERVER = "127.0.0.1:9876"
DEFAULT_MAX_MESSAGES = 500_000
_FILTERS = ("filtertags", "filtersql")


class JobSettings(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """What every pipeline is told."""

    namesrv: Annotated[
        str, Meta(description="The name servers of the cluster.", extra={"variable": "NAMESRV_ADDR", "short": "-n"})
    ] = DEFAULT_NAME_SERVER
    options: Annotated[
        dict[str, str],
        Meta(
            description="An option of the connector for all reads and writes, such as rocketmq.tls.enable=true.",
            extra={"flag": "option"},
        ),
    ] = {}
    master: Annotated[
        str | None, Meta(description="The Spark cluster, such as spark://host:7077.  [default: local[*]]")
    ] = None
    remote: Annotated[str | None, Meta(description="A Spark Connect server, such as sc://host:15002.")] = None
    spark: Annotated[
        dict[str, str], Meta(description="A setting of Spark, such as spark.executor.memory=4g; may be repeated.")
    ] = {}

    @property
    def connection(self) -> dict[str, str]:
        """The options of the connector that say whom to talk to."""
        return of_connection(self.options, self.address)

    @property
    def is_filtered(self) -> bool:
        """Whether brokers leave out messages: who does not get one cannot tell that it is gone."""
        return any(name.lower() in _FILTERS for name in self.options)

    @property
    def address(self) -> dict[str, str]:
        return {"rocketmq.namesrv.addr": self.namesrv}


class StreamSettings(JobSettings, frozen=True, kw_only=True, rename="kebab"):
    """What a pipeline is told that reads topics as a stream."""

    topics: Annotated[
        list[str], Meta(min_length=1, description="A topic to read; may be repeated.", extra={"flag": "topic"})
    ]
    checkpoint: Annotated[
        str, Meta(min_length=1, description="The folder that says how far the pipeline is; one for each pipeline.")
    ]
    starting: Annotated[
        Literal["earliest", "latest", "committed"],
        Meta(description="Where it begins the first time; committed is where --group stands."),
    ] = "earliest"
    group: Annotated[
        str | None, Meta(description="Publish its progress as this consumer group, for lag tools to see.")
    ] = None
    max_messages: Annotated[int, Meta(ge=1, description="At most so many messages in a micro-batch.")] = (
        DEFAULT_MAX_MESSAGES
    )
    on_data_loss: Annotated[
        Literal["fail", "skip", "earliest"],
        Meta(description="When messages are gone before they were read: fail, skip them, or begin at the earliest."),
    ] = "fail"
    continuous: Annotated[
        bool,
        Meta(
            description="Go on until it is stopped, or end when all that is there now is done.", extra={"off": "once"}
        ),
    ] = False
    every: Annotated[Span, Meta(description="With --continuous: look for new messages this often.")] = Span(5_000)
    metrics_port: Annotated[
        Annotated[int, Meta(ge=0, le=65535)] | None,
        Meta(description="Serve metrics for Prometheus on this port of the loopback.", extra={"word": "PORT"}),
    ] = None

    @property
    def reading(self) -> dict[str, str]:
        """The options of the connector for the stream."""
        return of_reads(self.options, self.own_reading)

    @property
    def own_reading(self) -> dict[str, str]:
        """Those of them that flags say."""
        told = {
            "subscribe": ",".join(self.topics),
            "startingOffsets": self.starting,
            "maxOffsetsPerTrigger": str(self.max_messages),
            "onDataLoss": self.on_data_loss,
        }
        return {**told, **({"groupId": self.group} if self.group else {}), **self.address}
