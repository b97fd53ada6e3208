"""OpenLineage: which topics and tables a Spark job reads and writes. Needs the extra `openlineage`.

    lineage = Lineage("127.0.0.1:9876")                          # where to send events: OPENLINEAGE_URL and its other variables

    spark.streams.addListener(lineage.listener())                # all streaming queries
    with lineage.job("report", inputs=["orders"], outputs=["/data/report"]): ...      # a batch

    query starts ── START ── its topics and sink are known ── RUNNING ── it ends ── COMPLETE, or FAIL with the error

Spark's own listener for OpenLineage, openlineage-spark, sees the files and tables of a job, but no data source in Python:
Spark shows it neither their options nor their names. So topics need events of their own.

A topic is the data set `rocketmq://host:port/topic`, with the address of the first name server. Events that cannot be sent are logged once.
"""

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self
from urllib.parse import urlsplit

from pyspark.sql.streaming.listener import StreamingQueryListener

from pocketmq.clock import Clock, SystemClock
from pocketmq.errors import InvalidSetting, MissingLibrary, install_command
from pocketmq.spark.options.connection_options import NAME_SERVER_VARIABLES
from pocketmq.spark.read.source_progress import sources_of

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

log = logging.getLogger("pocketmq.spark")

VARIABLES: Final = "OPENLINEAGE"
"""Begins the names of the environment variables that configure OpenLineage's client."""
DEFAULT_NAMESPACE: Final = "default"
PRODUCER: Final = "urn:pocketmq"
_FILE_SINK: Final = re.compile(r"\w+Sink\[(?P<path>.+)\]")
"""How Spark describes sinks that write files."""


class Data(NamedTuple):
    """A data set: a topic, file or table."""

    namespace: str
    name: str


class Lineage:
    """Sends events with OpenLineage's client. `name_servers` are those of the topics; `namespace` is the one of the jobs."""

    def __init__(
        self,
        name_servers: str | None = None,
        *,
        namespace: str | None = None,
        client: "OpenLineageClient | None" = None,
        clock: Clock | None = None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        found = name_servers or next((environ[name] for name in NAME_SERVER_VARIABLES if environ.get(name)), None)
        if not found:
            raise InvalidSetting("lineage needs the name servers of the topics, such as Lineage('127.0.0.1:9876')")
        self._library = _library()
        self._address = found.replace(",", ";").split(";")[0].strip()
        self._namespace = namespace or environ.get("OPENLINEAGE_NAMESPACE") or DEFAULT_NAMESPACE
        self._client = client or self._library.client()
        self._clock = clock or SystemClock()
        self._logged_failure = ""

    @classmethod
    def configured(cls, name_servers: str, environ: Mapping[str, str] = os.environ) -> Self | None:
        """With the variables of OpenLineage, such as OPENLINEAGE_URL; None if there are none."""
        if not any(name.startswith(VARIABLES) for name in environ):
            return None
        return cls(name_servers, environ=environ)

    def listener(self, outputs: Mapping[str, Sequence[str]] | None = None) -> "LineageListener":
        """A listener for `spark.streams.addListener`. `outputs` are by the name of a query, for sinks that do not show what they write,
        such as topics and `foreachBatch`.
        """
        return LineageListener(self, outputs or {})

    @contextmanager
    def job(
        self, name: str, *, inputs: Iterable[str | Data] = (), outputs: Iterable[str | Data] = ()
    ) -> Iterator[None]:
        """Report a block as one run of a job. Inputs and outputs are topics, paths, or addresses such as `s3://bucket/path`."""
        run = str(self._library.new_run())
        read, written = [*map(self.data, inputs)], [*map(self.data, outputs)]
        self.send("START", run, name, read, written)
        try:
            yield
        except BaseException as error:
            self.send("FAIL", run, name, read, written, f"{type(error).__name__}: {error}")
            raise
        self.send("COMPLETE", run, name, read, written)

    def data(self, text: str | Data) -> Data:
        """The data set of a topic, path or address."""
        if isinstance(text, Data):
            return text
        if text.startswith(("/", "file:")):
            return Data("file", urlsplit(text).path)
        parts = urlsplit(text)
        if parts.scheme and parts.netloc:
            return Data(f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/"))
        return Data(f"rocketmq://{self._address}", text)

    def send(
        self, kind: str, run: str, job: str, inputs: Iterable[Data], outputs: Iterable[Data], error: str | None = None
    ) -> None:
        """Send an event. A failure to send does not affect the job."""
        api = self._library.events
        facets = {} if error is None else {"errorMessage": self._library.error_facet(error, "PYTHON")}
        event = api.RunEvent(
            eventTime=datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(),
            producer=PRODUCER,
            eventType=api.RunState[kind],
            run=api.Run(runId=run, facets=facets),
            job=api.Job(namespace=self._namespace, name=job),
            inputs=[api.InputDataset(*each) for each in inputs],
            outputs=[api.OutputDataset(*each) for each in outputs],
        )
        try:
            self._client.emit(event)
        except Exception as failure:  # of the transport that the user chose
            text = f"{type(failure).__name__}: {failure}"
            if text != self._logged_failure:
                self._logged_failure = text
                log.warning("an event of OpenLineage could not be sent: %s; the job continues without it", text)


class _Query(NamedTuple):
    """What is known about a running query."""

    job: str
    inputs: tuple[Data, ...] = ()
    outputs: tuple[Data, ...] = ()


class LineageListener(StreamingQueryListener):
    """Reports each run of a streaming query. Its job has the name of the query, or else its id."""

    def __init__(self, lineage: Lineage, outputs: Mapping[str, Sequence[str]]) -> None:
        self._lineage = lineage
        self._outputs = {name: tuple(map(lineage.data, given)) for name, given in outputs.items()}
        self._running: dict[str, _Query] = {}

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:  # noqa: N802
        job = event.name or str(event.id)
        query = self._running[str(event.runId)] = _Query(job, outputs=self._outputs.get(job, ()))
        self._send("START", str(event.runId), query)

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:  # noqa: N802
        progress = event.progress
        run, job = str(progress.runId), progress.name or str(progress.id)
        topics = sorted({queue.topic for source in sources_of(progress) for queue in source.end.queues})
        found = _FILE_SINK.fullmatch(json.loads(progress.json)["sink"]["description"])
        outputs = self._outputs.get(job, ()) or ((self._lineage.data(found["path"]),) if found else ())
        query = _Query(job, tuple(map(self._lineage.data, topics)), outputs)
        if self._running.get(run) != query:
            self._running[run] = query
            self._send("RUNNING", run, query)

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:  # noqa: N802
        run = str(event.runId)
        query = self._running.pop(run, _Query(str(event.id)))
        self._send("FAIL" if event.exception else "COMPLETE", run, query, event.exception)

    def _send(self, kind: str, run: str, query: _Query, error: str | None = None) -> None:
        self._lineage.send(kind, run, query.job, query.inputs, query.outputs, error)


class _Library(NamedTuple):
    """The parts of openlineage-python that are used here."""

    client: Any
    events: Any
    error_facet: Any
    new_run: Any


def _library() -> _Library:
    try:
        from openlineage.client import OpenLineageClient, event_v2
        from openlineage.client.facet_v2 import error_message_run
        from openlineage.client.uuid import generate_new_uuid
    except ImportError:
        raise MissingLibrary(f"lineage needs openlineage-python; run {install_command('openlineage')}") from None
    return _Library(OpenLineageClient, event_v2, error_message_run.ErrorMessageRunFacet, generate_new_uuid)
