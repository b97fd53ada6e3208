"""Who reads the orders beside Spark: shipping in the order of each customer, and mail, which fails now and then.

shipping   ordered       counts orders that overtook an earlier one of their customer: none may
mail       concurrent    express orders only, which the broker filters by tag
             flaky   ──► once more after a second, and done
             broken  ──► once more, and again … ──► dead letter
"""

from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Annotated, Final

import msgspec

from pocketmq.client import PushConsumer, RetryLater
from pocketmq.demo.names import MAIL, ORDERS, SHIPPING
from pocketmq.demo.shop import EXPRESS, RECENT, is_flaky
from pocketmq.model.message import StoredMessage

MAX_RETRIES: Final = 2
"""How often mail tries an order again."""
SOON: Final = 1
"""The delay level of a retry: one second."""
PERSIST_MS: Final = 1_000
MANY: Final = 64
"""Orders that shipping takes at once."""


class Order(msgspec.Struct):
    """An order that can be read."""

    order_id: str
    number: int
    customer: str
    city: str
    amount_cents: Annotated[int, msgspec.Meta(ge=0)]
    placed_at: str
    received_at: str


_read = msgspec.json.Decoder(Order).decode


class Shipping:
    """Orders in the order of each customer. One that comes twice is shipped once, one that cannot be read not at all."""

    def __init__(self) -> None:
        self.handled = 0
        self.unreadable = 0
        self.twice = 0
        self.overtaken = 0
        self._last: dict[str, deque[int]] = defaultdict(lambda: deque([-1], maxlen=RECENT + 1))

    def ship(self, messages: list[StoredMessage]) -> None:
        for message in messages:
            self.handled += 1
            try:
                order = _read(message.body)
            except msgspec.DecodeError:
                self.unreadable += 1
                continue
            last = self._last[order.customer]
            if order.number in last:
                self.twice += 1
            elif order.number < last[-1]:
                self.overtaken += 1
            else:
                last.append(order.number)


class Mail:
    """A mail for each express order, if the mail server feels like it."""

    def __init__(self) -> None:
        self.mailed = 0
        self.failed = 0

    def mail(self, message: StoredMessage) -> None:
        try:
            _read(message.body)
        except msgspec.DecodeError as error:
            self.failed += 1
            raise RetryLater(str(error), delay_level=SOON) from None
        if message.reconsume_times == 0 and is_flaky(message.keys[0]):
            self.failed += 1
            raise RetryLater("the mail server is busy", delay_level=SOON)
        self.mailed += 1


@contextmanager
def readers(name_servers: str, shipping: Shipping, mail: Mail) -> Iterator[None]:
    """Both at work."""
    in_order = PushConsumer(
        name_servers, group=SHIPPING, ordered=True, start_at="first", pull_batch=MANY, persist_ms=PERSIST_MS
    )
    in_order.subscribe(ORDERS, shipping.ship, batch_size=MANY)
    express = PushConsumer(
        name_servers, group=MAIL, start_at="first", max_reconsume_times=MAX_RETRIES, workers=4, persist_ms=PERSIST_MS
    )
    express.subscribe(ORDERS, mail.mail, tags=EXPRESS)
    with ExitStack() as running:
        for consumer in (in_order, express):
            running.enter_context(consumer)
        yield
