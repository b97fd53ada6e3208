"""The demo from start to end.

    broker ─► staff and Spark, in parallel ─► evening: Spark reads the rest ─► retries end ─► reconciliation ─► report

After ctrl-C, or kill -9 of Spark or of the whole demo, `resume` continues: each part finds out by itself what is done. The staff of the
shop works in one thread each: till, bank and calendar, and two consumers.
"""

import threading
from collections.abc import Callable, Iterator
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
from pocketmq.errors import PipelineFailed, PocketMQError, install_command
from pocketmq.files import diverted_errors
from pocketmq.model import dlq_topic, parse_group, retry_topic
from pocketmq.pipelines import session
from pocketmq.pipelines.core.libraries import error_text


class Staff:
    """The staff of the shop: `with staff.at_work(name_servers):`. `is_done` when all messages are sent."""

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
        """Raise the first failure of one of them."""
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
        except BaseException as error:  # raised by the thread that waits for all
            self._failure = self._failure or error

    def lines(self) -> list[Line]:
        """A line for each of them."""
        till, shipping, mail = self.till, self.shipping, self.mail
        found = f"{till.found:,} sent before" if till.found else ""
        trouble = f"{shipping.overtaken:,} overtaken, {shipping.twice:,} twice"
        return [
            Line("till", till.total, self._day.orders, self._per_s("till", till.sent), detail=found),
            Line("bank", self.bank.begun, len(self._payments), detail=f"{self.bank.checks:,} transaction checks"),
            Line("calendar", self.calendar.sent, len(self._reminders)),
            Line("shipping", shipping.handled, None, self._per_s("shipping", shipping.handled), detail=trouble),
            Line("mail", mail.mailed, None, self._per_s("mail", mail.mailed), detail=f"{mail.failed:,} failures"),
        ]

    def _per_s(self, who: str, count: int) -> float:
        return self._rates.setdefault(who, Rate()).at(self._clock.monotonic(), count)

    def checks(self, admin: Admin) -> list[Check]:
        """The state at the brokers, compared with the expected one."""
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
    """Whether every message is accounted for, and where the results are."""

    checks: tuple[Check, ...]
    reasons: dict[str, int]
    """The number of dead orders by reason."""
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
        """What to try next, with the program's name as the user calls it."""
        return f"""
What to try next
  {program} demo --messages 1_000_000
      More of the same. Kill it, and continue: {program} demo --resume
  {program} serve --console --data {self.folder}/broker
      In a browser, or on the command line: {program} topic ls, {program} dlq ls
  {program} pipeline --help
      Ready pipelines: archive, replay, mirror, quality and more.
  {program} pipeline new my-shop
      Your own pipeline, with a test."""

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [reconciliation.table(self.checks), Text()]
        if self.reasons:
            reasons = ", ".join(f"{reason}: {many:,}" for reason, many in sorted(self.reasons.items()))
            parts.append(Text(f"Dead orders: {reasons}"))
        parts += [Text("\nRevenue by hour and city"), sparkline(self.windows), Text()]
        parts += [Text(f"lake  {self.lake}"), Text(f"plot  {self.plot}"), Text()]
        verdict = (
            "Every message is accounted for" if self.holds else "Messages are missing or repeated: see WRONG above"
        )
        parts.append(
            Text(f"{verdict}. Duration: {self.took_ms / 1000:.0f} s.", style="bold green" if self.holds else "bold red")
        )
        return Group(*parts)


POLL_S: Final = 0.25
SETTLE_S: Final = 60.0
"""Time for retries, transaction checks and reminders after the last order. After that, missing ones are reported."""
SPARK_SETTINGS: Final = {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": "-XX:+UseSerialGC"}
SHORT_DAY: Final = 300_000
QUICK_START: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""Java options for a short day, which ends before optimized code would pay off."""


CLOSED: Final = "the shop is closed"


class DemoSettings(NamedTuple):
    """The options of a demo."""

    folder: Path
    orders: int
    seed: int
    resume: bool = False
    console_port: int = 0
    """0 selects a free port."""
    keep: bool = False
    """Keep broker and console running at the end, until ctrl-C."""
    open_s: float = OPEN_S


def run(
    settings: DemoSettings, show: Callable[[Report], None], clock: Clock | None = None, *, is_quiet: bool = False
) -> Report:
    """Run a day of the shop. Progress goes to stderr, unless it is quiet; the report goes to `show`."""
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
            screen.print(f"broker   {name_servers}, with its data in {folder.broker}")
            screen.print(f"console  {url or 'not available; run ' + install_command('console')}")
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
    """The day to continue, or a new one in an empty folder. The folder is locked during this context."""
    if settings.resume:
        day = folder.resume()
        with folder.locked():
            yield day
        return
    day = Day(settings.seed, yesterday_ms(clock.now_ms()), settings.orders)
    folder.check_own()  # before anything is created in it
    with folder.locked():
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
        self._queries = Queries(screen.print)
        self._rate = Rate()

    def run(self) -> Report:
        with self._staff.at_work(self._name_servers), Admin(self._name_servers) as admin:
            self._update("Spark starts")
            with _spark_failures(self._folder), session("pocketmq demo", settings=self._settings) as spark:
                pipeline = ShopPipeline(spark, self._name_servers, self._folder)
                self._open(pipeline)
                self._evening(pipeline)
                checks = self._settle(admin)
                self._update("counting")
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
        """While the staff works, Spark follows. A batch of orders is never stopped midway, as it would have to be repeated."""
        self._queries.begin((LAKE, DEAD, HOURS), partial(pipeline.start, once=False))
        while not (is_closed := self._staff.till.is_done) or not self._queries.have_caught_up(LAKE, DEAD):
            self._update(CLOSED if is_closed else "the shop is open")
            _wait()
        self._queries.stop()

    def _evening(self, pipeline: ShopPipeline) -> None:
        """After the last order: queries read to the end, one after the other."""
        for names in ((LAKE, DEAD), (HOURS,)):
            self._queries.begin(names, partial(pipeline.start, once=True))
            while self._queries.are_active:
                self._update(CLOSED)
                _wait()
            self._update(CLOSED)

    def _settle(self, admin: Admin) -> list[Check]:
        """Wait for retries, transaction checks and reminders. Returns the checks when all hold, or after the timeout."""
        ends = self._clock.monotonic() + SETTLE_S
        while True:
            self._update("retries, transaction checks, reminders")
            checks = self._staff.checks(admin)
            if all(check.holds for check in checks) or self._clock.monotonic() >= ends:
                return checks
            _wait()

    def _update(self, stage: str) -> None:
        """Check queries and staff, and show their progress."""
        self._staff.raise_failure()
        self._queries.update()
        self._screen.show(partial(self._view, stage))

    def _view(self, stage: str) -> View:
        """Done means that Spark has read all orders."""
        done = self._queries.done(LAKE, self._staff.till.total)
        per_s = self._rate.at(self._clock.monotonic(), done)
        eta_s = (self._day.orders - done) / per_s if per_s else None
        return View(stage, done / self._day.orders, eta_s, [*self._staff.lines(), *self._queries.lines()])


def _wait() -> None:
    threading.Event().wait(POLL_S)


@contextmanager
def _spark_failures(folder: DemoFolder) -> Iterator[None]:
    """Failures of Spark as a short text, with advice to continue."""
    try:
        yield
    except PipelineFailed as error:
        raise PipelineFailed(f"{str(error).rstrip('.')}. {_advice(folder)}") from error
    except PocketMQError:
        raise
    except Exception as error:  # from the connection to a Spark that has ended: each library has its own types
        raise PipelineFailed(f"Spark has ended: {error_text(error).rstrip('.')}. {_advice(folder)}") from error


def _advice(folder: DemoFolder) -> str:
    return f"Spark's log is {folder.log}. Nothing is lost: pocketmq demo --resume --dir {folder.path}"
