"""The demo from its beginning to its end.

    broker ─► staff and Spark, at the same time ─► evening: Spark does what is left ─► all settle ─► reconciliation ─► report

Whatever ends it in between, ctrl-C, kill -9 of Spark or of all of it: with `resume` it goes on, for each part looks by itself what is
done.

All who work in the shop, each in a thread: till, bank, calendar, and the two who read.

What a demo came to, to be shown, to be kept, and to decide how it ends.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
from rich.console import Console, Group, RenderableType
from rich.text import Text

from pocketmq.client import Admin
from pocketmq.clock import Clock, SystemClock
from pocketmq.demo import reconciliation
from pocketmq.demo.live import Line, LiveScreen, Rate, View, Window, chart, sparkline
from pocketmq.demo.pipeline import DEAD, HOURS, LAKE, Count, Queries, ShopPipeline
from pocketmq.demo.reconciliation import (
    Check,
    Readers,
    as_rows,
    order_checks,
    payment_checks,
    reader_checks,
    reminder_checks,
)
from pocketmq.demo.servers import DemoFolder, keys_of, make_topics, messages_of, running_broker, running_console
from pocketmq.demo.shop import MAIL, ORDERS, PAYMENTS, REMINDERS, SHIPPING, Day, payments, reminders, yesterday_ms
from pocketmq.demo.staff import CHECKS, OPEN_S, Bank, Calendar, Mail, Shipping, Till, readers
from pocketmq.errors import PipelineFailed, PocketMQError
from pocketmq.files import diverted_errors
from pocketmq.model.names import dlq_topic, parse_group, retry_topic
from pocketmq.pipelines import session
from pocketmq.pipelines.core.libraries import told


class Staff:
    """Use it as `with staff.at_work(name_servers):`; `is_done` when all is sent."""

    def __init__(self, day: Day, clock: Clock, open_s: float) -> None:
        self._stopping = threading.Event()
        self._clock = clock
        self._day = day
        self._failure: BaseException | None = None
        self._rates: dict[str, Rate] = {}
        self._payments, self._reminders = payments(day), reminders(day)
        self.till = Till(day, clock, self._stopping.wait, open_s)
        self.bank = Bank(self._payments, self._stopping.wait)
        self.calendar = Calendar(self._reminders, clock, self._stopping.wait)
        self.shipping = Shipping()
        self.mail = Mail()

    @property
    def is_done(self) -> bool:
        return self.till.is_done and self.bank.is_done and self.calendar.is_done

    def raise_failure(self) -> None:
        """What went wrong for one of them."""
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def at_work(self, name_servers: str) -> Iterator[None]:
        jobs = (self.till.send_all, self.bank.pay_all, self.calendar.remind_all)
        threads = [threading.Thread(target=self._do, args=(job, name_servers), daemon=True) for job in jobs]
        with readers(name_servers, self.shipping, self.mail):
            for thread in threads:
                thread.start()
            try:
                yield
            finally:
                self._stopping.set()
                for thread in threads:
                    thread.join()

    def _do(self, job: Callable[[str], None], name_servers: str) -> None:
        try:
            job(name_servers)
        except BaseException as error:  # told by the thread that waits for all
            self._failure = self._failure or error

    def lines(self) -> list[Line]:
        """How far each is."""
        till, shipping, mail = self.till, self.shipping, self.mail
        found = f"{till.found:,} were there" if till.found else ""
        trouble = f"{shipping.overtaken:,} overtaken, {shipping.twice:,} came twice"
        return [
            Line("till", till.there, self._day.orders, self._per_s("till", till.sent), note=found),
            Line("bank", self.bank.begun, len(self._payments), note=f"{self.bank.asked:,} asked back"),
            Line("calendar", self.calendar.sent, len(self._reminders)),
            Line("shipping", shipping.handled, None, self._per_s("shipping", shipping.handled), note=trouble),
            Line("mail", mail.mailed, None, self._per_s("mail", mail.mailed), note=f"{mail.failed:,} failures"),
        ]

    def _per_s(self, who: str, count: int) -> float:
        return self._rates.setdefault(who, Rate()).at(self._clock.monotonic(), count)

    def checks(self, admin: Admin) -> list[Check]:
        """What brokers know of their work, compared with what should be."""
        stored = messages_of(admin, REMINDERS)
        known = Readers(
            shipping_behind=admin.offsets.lag(SHIPPING).messages,
            mail_behind=admin.offsets.lag(MAIL).messages,
            overtaken=self.shipping.overtaken,
            retries=admin.topics.describe(retry_topic(parse_group(MAIL))).messages,
            dead_letters=len(keys_of(admin, dlq_topic(parse_group(MAIL)))),
        )
        return [
            *reader_checks(self.till.tally, known),
            *payment_checks(self._payments, messages_of(admin, PAYMENTS)),
            *reminder_checks(self._reminders, stored),
        ]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Whether every message is accounted for, and where to look."""

    checks: tuple[Check, ...]
    reasons: dict[str, int]
    """Why orders are dead, and how many."""
    windows: tuple[Window, ...]
    folder: Path
    lake: Path
    plot: Path
    took_ms: int
    seed: int

    @property
    def holds(self) -> bool:
        return all(check.holds for check in self.checks)

    def as_data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "holds": self.holds,
            "took_ms": self.took_ms,
            "seed": self.seed,
            "checks": as_rows(self.checks),
            "dead_reasons": self.reasons,
            "lake": str(self.lake),
            "plot": str(self.plot),
        }

    def next_steps(self, program: str = "pocketmq") -> str:
        """What to try now, with the program as the user calls it."""
        return f"""
What to try next
  {program} demo --messages 1_000_000
      More of the same. Kill it in the middle, and go on: {program} demo --resume
  {program} serve --console --data {self.folder}/broker
      Look around in a browser, or beside it: {program} topic ls, {program} dlq ls
  {program} pipeline --help
      Ready pipelines: topics to a lake and back, checked, mirrored, measured.
  {program} pipeline new my-shop
      A pipeline of your own, with a test."""

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [reconciliation.table(self.checks), Text()]
        if self.reasons:
            told = ", ".join(f"{reason}: {many:,}" for reason, many in sorted(self.reasons.items()))
            parts.append(Text(f"Why orders are dead: {told}"))
        parts += [Text("\nRevenue by hour and city"), sparkline(self.windows), Text(), *_places(self), Text()]
        verdict = (
            "Every message is accounted for" if self.holds else "Messages are missing, or too many: see WRONG above"
        )
        parts.append(
            Text(f"{verdict}. It took {self.took_ms / 1000:.0f} s.", style="bold green" if self.holds else "bold red")
        )
        return Group(*parts)


def _places(report: Report) -> Sequence[Text]:
    return [Text(f"lake  {report.lake}"), Text(f"plot  {report.plot}")]


LOOK_S: Final = 0.25
SETTLE_S: Final = 60.0
"""How long retries, questions and reminders may take after the last order. What is not there then is told as missing."""
SPARK_SETTINGS: Final = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
SHORT_DAY: Final = 300_000
QUICK_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""For Java, on a day with fewer orders: it is over before better code pays for the time that it takes to make."""


CLOSED: Final = "the shop is closed"
NO_CONSOLE: Final = "none: pip install 'pocketmq[console]' for one"


class DemoSettings(NamedTuple):
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
    settings: DemoSettings, show: Callable[[Report], None], clock: Clock | None = None, *, is_quiet: bool = False
) -> Report:
    """A day of the shop. How far it is, it tells on the error stream, unless it is to be quiet; what came of it goes to `show`."""
    clock = clock or SystemClock()
    began = clock.monotonic()
    folder = DemoFolder(settings.folder)
    with (
        _day_in(folder, settings, clock) as day,
        diverted_errors(folder.log) as errors,
        running_broker(folder.broker, CHECKS) as name_servers,
        running_console(name_servers, settings.console_port, folder.plot) as url,
    ):
        make_topics(name_servers)
        with LiveScreen(clock, Console(file=errors, highlight=False), is_quiet=is_quiet) as screen:
            screen.tell(f"broker   {name_servers}, with its data in {folder.broker}")
            screen.tell(f"console  {url or NO_CONSOLE}")
            report = _Demo(day, folder, name_servers, screen, clock, settings.open_s).run()
        report = msgspec.structs.replace(report, took_ms=round((clock.monotonic() - began) * 1000))
        folder.keep(folder.report, msgspec.json.encode(report.as_data()))
        show(report)
        if settings.keep:
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    return report


@contextmanager
def _day_in(folder: DemoFolder, settings: DemoSettings, clock: Clock) -> Iterator[Day]:
    """The day to go on with, or a new one in an empty folder, which is this demo's while it lasts."""
    if settings.resume:
        day = folder.resume()
        with folder.held():
            yield day
        return
    day = Day(settings.seed, yesterday_ms(clock.now_ms()), settings.orders)
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
        self._folder.keep(self._folder.plot, chart(windows, f"Revenue by hour and city: {date}").encode())
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
