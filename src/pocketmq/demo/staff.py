"""All who work in the shop, each in a thread: till, bank, calendar, and the two who read."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pocketmq.client import Admin
from pocketmq.clock import Clock
from pocketmq.demo.deeds import payments, reminders
from pocketmq.demo.live import Line, Rate
from pocketmq.demo.names import MAIL, PAYMENTS, REMINDERS, SHIPPING
from pocketmq.demo.paying import Bank
from pocketmq.demo.reading import Mail, Shipping, readers
from pocketmq.demo.reconciliation import Check, Readers, payment_checks, reader_checks, reminder_checks
from pocketmq.demo.reminding import Calendar
from pocketmq.demo.selling import Till
from pocketmq.demo.shop import Day
from pocketmq.demo.topics import keys_of, messages_of
from pocketmq.model.names import dlq_topic, parse_group, retry_topic


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
