"""Templates, their filters, and tables that are paged on the server. Templates escape all values except our own SVG."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar
from urllib.parse import quote

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined

from pocketmq import __version__
from pocketmq.client.admin.targets import BrokerAddress
from pocketmq.errors import NetworkError, PocketMQError, ProtocolError, RemoteError, UsageError
from pocketmq.model import human
from pocketmq.model.names import group_of, is_internal_group, is_system_topic, reply_topic
from pocketmq.protocol.compression import compression_of


def environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("pocketmq.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    templates.filters |= {
        "number": human.number,
        "short": human.short_number,
        "duration": human.duration,
        "time": human.short_local_time,
        "percent": human.percent,
        "size": human.size,
        "perm": human.perm_text,
        "compression": _compression_name,
        "part": lambda text: quote(str(text), safe=""),
    }
    templates.tests["internal_group"] = is_internal_group
    templates.globals |= {"version": __version__, "count": human.count}
    return templates


def _compression_name(sys_flag: int) -> str:
    """The compression, such as `zlib`; empty if the body is not compressed."""
    try:
        kind = compression_of(sys_flag)
    except ProtocolError:
        return "compressed"
    return "" if kind is None else kind.name.lower()


class Templates:
    def __init__(self) -> None:
        self._environment = environment()

    def page(self, name: str, data: Mapping[str, Any]) -> str:
        return self._environment.get_template(f"{name}.html").render(data)

    def live(self, name: str, data: Mapping[str, Any]) -> str:
        """The live part of a page, which has a template of its own."""
        return self._environment.get_template(f"live/{name}.html").render(data)


def is_user_topic(topic: str) -> bool:
    return not (is_system_topic(topic) or group_of(topic))


def user_topics(topics: Iterable[str], brokers: Collection[BrokerAddress]) -> tuple[str, ...]:
    """The sorted topics of users: without retry, dead letter and system topics, and the brokers' own topics."""
    clusters = {broker.cluster for broker in brokers}
    own = {broker.name for broker in brokers} | clusters | {reply_topic(cluster) for cluster in clusters}
    return tuple(sorted(topic for topic in topics if topic not in own and is_user_topic(topic)))


def sentence(error: PocketMQError) -> str:
    """The first line of an error, with advice if no server answers."""
    remark = error.remark if isinstance(error, RemoteError) and error.remark else str(error)
    text = remark.partition("\n")[0].rstrip(".")
    return f"{text}. Check that name server and brokers are running." if isinstance(error, NetworkError) else f"{text}."


T = TypeVar("T")


def read_field(name: str, text: str, parse: Callable[[str], T]) -> T:
    """Parse a field of a form; UsageError names the field."""
    try:
        return parse(text)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


class Rows(msgspec.Struct, Generic[T], frozen=True):
    """One page of a table."""

    shown: Sequence[T]
    number: int
    """From 1."""
    pages: int
    total: int

    @property
    def before(self) -> int | None:
        return self.number - 1 if self.number > 1 else None

    @property
    def after(self) -> int | None:
        return self.number + 1 if self.number < self.pages else None


def rows(everything: Sequence[T], page: str, per_page: int) -> Rows[T]:
    """The requested page, or the nearest one: a link may be older than the table."""
    pages = max(1, -(-len(everything) // per_page))
    number = min(pages, max(1, int(page))) if page.isascii() and page.isdigit() and len(page) < 10 else 1
    begin = (number - 1) * per_page
    return Rows(everything[begin : begin + per_page], number, pages, len(everything))


def matching(names: Sequence[str], text: str) -> list[str]:
    """The names that contain the text, ignoring case."""
    needle = text.strip().lower()
    return [name for name in names if needle in name.lower()] if needle else list(names)
