"""The demo from its beginning to its end.

    broker ─► staff and Spark, at the same time ─► evening: Spark does what is left ─► all settle ─► reconciliation ─► report

Whatever ends it in between, ctrl-C, kill -9 of Spark or of all of it: with `resume` it goes on, for each part looks by itself what is
done.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
from rich.console import Console

from pocketmq.client import Admin
from pocketmq.clock import Clock, SystemClock
from pocketmq.demo.cluster import running_broker
from pocketmq.demo.console import running_console
from pocketmq.demo.counting import Count
from pocketmq.demo.folder import DemoFolder
from pocketmq.demo.live import LiveScreen, Rate, View
from pocketmq.demo.names import ORDERS
from pocketmq.demo.paying import CHECKS
from pocketmq.demo.pipeline import DEAD, HOURS, LAKE, ShopPipeline
from pocketmq.demo.plot import draw
from pocketmq.demo.queries import Queries
from pocketmq.demo.reconciliation import Check, order_checks
from pocketmq.demo.report import Report
from pocketmq.demo.selling import OPEN_S
from pocketmq.demo.shop import Day, yesterday_ms
from pocketmq.demo.staff import Staff
from pocketmq.demo.topics import make_topics
from pocketmq.errors import PipelineFailed, PocketMQError
from pocketmq.files import diverted_errors
from pocketmq.pipelines import session
from pocketmq.pipelines.failures import told

LOOK_S: Final = 0.25
SETTLE_S: Final = 60.0
"""How long retries, questions and reminders may take after the last order. What is not there then is told as missing."""
SPARK_SETTINGS: Final = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
SHORT_DAY: Final = 300_000
QUICK_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Java, on a day with fewer orders: it is over before better code pays for the time that it takes to make."""


CLOSED: Final = "the shop is closed"
NO_CONSOLE: Final = "none: pip install 'pocketmq[console]' for one"


class Wishes(NamedTuple):
    """What a demo is asked for."""

    folder: Path
    orders: int
    seed: int
    resume: bool = False
    console_port: int = 0
    """0 is any free one."""
    keep: bool = False
    """Let broker and console run at the end, until ctrl-C."""
    open_s: float = OPEN_S


def run(
    wishes: Wishes, show: Callable[[Report], None], clock: Clock | None = None, *, is_quiet: bool = False
) -> Report:
    """A day of the shop. How far it is, it tells on the error stream, unless it is to be quiet; what came of it goes to `show`."""
    clock = clock or SystemClock()
    began = clock.monotonic()
    folder = DemoFolder(wishes.folder)
    with (
        _day_in(folder, wishes, clock) as day,
        diverted_errors(folder.log) as errors,
        running_broker(folder.broker, CHECKS) as name_servers,
        running_console(name_servers, wishes.console_port, folder.plot) as url,
    ):
        make_topics(name_servers)
        with LiveScreen(clock, Console(file=errors, highlight=False), is_quiet=is_quiet) as screen:
            screen.tell(f"broker   {name_servers}, with its data in {folder.broker}")
            screen.tell(f"console  {url or NO_CONSOLE}")
            report = _Demo(day, folder, name_servers, screen, clock, wishes.open_s).run()
        report = msgspec.structs.replace(report, took_ms=round((clock.monotonic() - began) * 1000))
        folder.keep(folder.report, msgspec.json.encode(report.as_data()))
        show(report)
        if wishes.keep:
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    return report


@contextmanager
def _day_in(folder: DemoFolder, wishes: Wishes, clock: Clock) -> Iterator[Day]:
    """The day to go on with, or a new one in an empty folder, which is this demo's while it lasts."""
    if wishes.resume:
        day = folder.resume()
        with folder.held():
            yield day
        return
    day = Day(wishes.seed, yesterday_ms(clock.now_ms()), wishes.orders)
    folder.refuse_strangers()  # before anything is made in it
    with folder.held():
        folder.start_over(day)
        yield day


class _Demo:
    """One run, on a broker."""

    def __init__(
        self, day: Day, folder: DemoFolder, name_servers: str, screen: LiveScreen, clock: Clock, open_s: float
    ) -> None:
        self._day = day
        self._folder = folder
        self._name_servers = name_servers
        self._screen = screen
        self._clock = clock
        self._staff = Staff(day, clock, open_s)
        self._queries = Queries(screen.tell)
        self._rate = Rate()

    def run(self) -> Report:
        with self._staff.at_work(self._name_servers), Admin(self._name_servers) as admin:
            self._look("Spark starts")
            with _spark_failures(self._folder), session("pocketmq demo", settings=self._settings) as spark:
                pipeline = ShopPipeline(spark, self._name_servers, self._folder)
                self._open(pipeline)
                self._evening(pipeline)
                checks = self._settle(admin)
                self._look("counting")
                count = Count(spark, self._name_servers, self._folder)
                windows = count.windows()
                lake, reasons = count.lake(windows), count.reasons()
            sent = admin.topics.describe(ORDERS).messages
        date = datetime.fromtimestamp(self._day.begin_ms / 1000, UTC).date()
        self._folder.keep(self._folder.plot, draw(windows, f"revenue by hour and city: {date}"))
        return Report(
            checks=(*order_checks(self._staff.till.tally, sent, lake), *checks),
            reasons=reasons,
            windows=tuple(windows),
            folder=self._folder.path,
            lake=self._folder.lake,
            plot=self._folder.plot,
            took_ms=0,
            seed=self._day.seed,
        )

    @property
    def _settings(self) -> dict[str, str]:
        quick = {"spark.driver.extraJavaOptions": QUICK_START} if self._day.orders < SHORT_DAY else {}
        return {**SPARK_SETTINGS, **quick}

    def _open(self, pipeline: ShopPipeline) -> None:
        """While the staff is at work, Spark follows. It ends no batch of orders in the middle, which would have to be done again."""
        self._queries.begin((LAKE, DEAD, HOURS), partial(pipeline.start, once=False))
        while not (is_closed := self._staff.till.is_done) or not self._queries.have_caught_up(LAKE, DEAD):
            self._look(CLOSED if is_closed else "the shop is open")
            _wait()
        self._queries.stop()

    def _evening(self, pipeline: ShopPipeline) -> None:
        """All orders are there: to the end of them, in the order in which queries follow one another."""
        for names in ((LAKE, DEAD), (HOURS,)):
            self._queries.begin(names, partial(pipeline.start, once=True))
            while self._queries.are_active:
                self._look(CLOSED)
                _wait()
            self._look(CLOSED)

    def _settle(self, admin: Admin) -> list[Check]:
        """Retries, questions and reminders have their time. What the staff did, when all holds or the time is over."""
        ends = self._clock.monotonic() + SETTLE_S
        while True:
            self._look("retries, questions of the broker, reminders")
            checks = self._staff.checks(admin)
            if all(check.holds for check in checks) or self._clock.monotonic() >= ends:
                return checks
            _wait()

    def _look(self, stage: str) -> None:
        """Hear how far queries are, and show it."""
        self._staff.raise_failure()
        self._queries.look()
        self._screen.show(partial(self._view, stage))

    def _view(self, stage: str) -> View:
        """The whole is done when Spark has all orders."""
        done = self._queries.done(LAKE, self._staff.till.there)
        per_s = self._rate.at(self._clock.monotonic(), done)
        eta_s = (self._day.orders - done) / per_s if per_s else None
        return View(stage, done / self._day.orders, eta_s, [*self._staff.lines(), *self._queries.lines()])


def _wait() -> None:
    threading.Event().wait(LOOK_S)


@contextmanager
def _spark_failures(folder: DemoFolder) -> Iterator[None]:
    """What Spark does wrong, in a sentence, and how to go on."""
    try:
        yield
    except PipelineFailed as error:
        raise PipelineFailed(f"{str(error).rstrip('.')}. {_advice(folder)}") from error
    except PocketMQError:
        raise
    except Exception as error:  # of the line to a Spark that is gone: each library has its own kinds
        raise PipelineFailed(f"Spark has ended: {told(error).rstrip('.')}. {_advice(folder)}") from error


def _advice(folder: DemoFolder) -> str:
    return f"Spark's own words are in {folder.log}. Nothing is lost: pocketmq demo --resume --dir {folder.path}"
