"""`pocketmq demo`: a shop's day, from its events to a lake, with every message accounted for at the end.

orders    ── in order per customer, some late, twice or broken ──► topic ─┬─► shipping: reads in order
payments  ── in transactions, some dropped or asked back about ──► topic  ├─► mail: fails now and then; retries, dead letters
reminders ── delayed ─────────────────────────────────────────────► topic └─► Spark ─► lake, dead rows, revenue per city

shop            what happens, the same for the same seed             folder        where all is kept, to go on after a crash
selling, paying, reminding, reading                                  what the programs of the shop do
pipeline        what Spark does                                      live, plot    what is shown
reconciliation  sent = valid + dead + duplicates                     day           all of it, in its order
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pocketmq.demo.day import Wishes, run
    from pocketmq.demo.report import Report
else:

    def __getattr__(name: str) -> object:
        """Clients and Spark come when they are asked for: the command line has many commands that need neither."""
        if name in __all__:
            from pocketmq.demo import day

            return getattr(day, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = ["Report", "Wishes", "run"]
