"""`pocketmq demo`: one day of a shop, from its events to a lake. At the end every message is accounted for.

    orders    ── in order per customer, some late, twice or broken ──► topic ─┬─► shipping: reads in order
    payments  ── in transactions, some rolled back or checked back ──► topic  ├─► mail: fails now and then; retries, dead letters
    reminders ── delayed ─────────────────────────────────────────────► topic └─► Spark ─► lake, dead rows, revenue per city

Modules in reading order:

    shop             the events of the day, the same for the same seed
    servers          the broker, as a process of its own
    staff            the producers and consumers of the shop
    pipeline         the three Spark queries
    live             the live display
    reconciliation   sent = valid + dead + duplicates
    day              the whole demo from start to end
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.demo.day import DemoSettings, Report, run
else:

    def __getattr__(name: str) -> object:
        """Clients and Spark load on first use: many commands need neither."""
        if name in __all__:
            from pocketmq.demo import day

            return getattr(day, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["DemoSettings", "Report", "run"]
