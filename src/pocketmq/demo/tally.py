"""What a day should come to: counted from its events, while they are sent, and compared at the end with what is there."""

from dataclasses import dataclass

from pocketmq.demo.shop import EXPRESS, Event, Kind, is_flaky


@dataclass
class Tally:
    """Counts of events. `amount_cents` and `numbers` are sums over valid orders: two days that agree in them are the same."""

    events: int = 0
    late: int = 0
    again: int = 0
    broken: int = 0
    amount_cents: int = 0
    numbers: int = 0
    punctual_cents: int = 0
    express_broken: int = 0
    express_flaky: int = 0

    @property
    def valid(self) -> int:
        """Orders, each counted once."""
        return self.events - self.again - self.broken

    @property
    def punctual(self) -> int:
        return self.valid - self.late

    def add(self, event: Event) -> None:
        self.events += 1
        is_express = event.tag == EXPRESS
        if event.kind is Kind.BROKEN:
            self.broken += 1
            self.express_broken += is_express
            return
        self.express_flaky += is_express and is_flaky(event.key)
        if event.kind is Kind.AGAIN:
            self.again += 1
            return
        self.amount_cents += event.amount_cents
        self.numbers += event.number
        if event.kind is Kind.LATE:
            self.late += 1
        else:
            self.punctual_cents += event.amount_cents
