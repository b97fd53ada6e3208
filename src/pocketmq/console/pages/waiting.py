"""What waits: delayed messages that are not due yet, and transactions that wait for their producer's word."""

from collections.abc import Mapping
from typing import Any, Final

from pocketmq.client.admin.transactions import OpenTransaction
from pocketmq.console.bodies import first_line
from pocketmq.console.rendering import rows
from pocketmq.console.site import Action, Done, Page, Site, Visit
from pocketmq.console.users import Session
from pocketmq.errors import NotFound, UsageError

READ_AT_MOST: Final = 1_000
"""Of each delay level, and half messages of each broker: reading costs the broker."""
GOOD_S: Final = 10.0


async def delayed(site: Site, visit: Visit) -> Mapping[str, Any]:
    found = await site.answers.ask("delayed", lambda: site.admin.delays.waiting(limit=READ_AT_MOST), good_s=GOOD_S)
    page = rows(found.found, visit.query.get("page", ""), site.settings.rows_per_page)
    return {
        "rows": page,
        "shown": [(one, first_line(one.message)) for one in page.shown],
        "is_complete": found.is_complete,
        "read_at_most": READ_AT_MOST,
    }


async def transactions(site: Site, visit: Visit) -> Mapping[str, Any]:
    found = await site.answers.ask(
        "undecided", lambda: site.admin.transactions.undecided(limit=READ_AT_MOST), good_s=GOOD_S
    )
    return {
        "rows": rows(found.found, visit.query.get("page", ""), site.settings.rows_per_page),
        "is_complete": found.is_complete,
        "read_at_most": READ_AT_MOST,
    }


async def decide(site: Site, visit: Visit, session: Session) -> Done:
    """In the place of its producer, who does not say."""
    one = await _transaction(site, visit.form.get("id", ""), visit.form.get("broker", ""))
    if visit.form.get("decision") == "commit":
        await site.admin.transactions.commit(one)
        words = f"Transaction {one.transaction_id} was committed: its message can be read now."
    elif visit.form.get("decision") == "roll back":
        await site.admin.transactions.roll_back(one)
        words = f"Transaction {one.transaction_id} was rolled back: nobody will see its message."
    else:
        raise UsageError("choose to commit or to roll back")
    return Done("/transactions", words)


async def _transaction(site: Site, transaction_id: str, broker: str) -> OpenTransaction:
    for one in (await site.admin.transactions.undecided(limit=READ_AT_MOST)).found:
        if one.transaction_id == transaction_id and one.broker == broker:
            return one
    raise NotFound(f"no transaction {transaction_id} waits at {broker} any more")


PAGES: Final = [
    Page("/delayed", "delayed", delayed, "delayed"),
    Page("/transactions", "transactions", transactions, "transactions"),
]
ACTIONS: Final = [Action("/transactions", decide, "/transactions")]
