"""Delayed messages that are not due yet, and undecided transactions."""

from collections.abc import Mapping
from typing import Any, Final

from pocketmq.client.admin.transactions import OpenTransaction
from pocketmq.console.bodies import preview
from pocketmq.console.rendering import rows
from pocketmq.console.site import Action, ActionResult, Page, Site, Visit
from pocketmq.errors import NotFound, UsageError

READ_AT_MOST: Final = 1_000
"""The limit per delay level, and on half messages per broker, since reading them costs the broker."""
CACHE_S: Final = 10.0


async def delayed(site: Site, visit: Visit) -> Mapping[str, Any]:
    found = await site.cache.get("delayed", lambda: site.admin.delays.waiting(limit=READ_AT_MOST), cache_s=CACHE_S)
    page = rows(found.found, visit.query.get("page", ""), site.settings.rows_per_page)
    return {
        "rows": page,
        "shown": [(one, preview(one.message)) for one in page.shown],
        "is_complete": found.is_complete,
        "read_at_most": READ_AT_MOST,
    }


async def transactions(site: Site, visit: Visit) -> Mapping[str, Any]:
    found = await site.cache.get(
        "undecided", lambda: site.admin.transactions.undecided(limit=READ_AT_MOST), cache_s=CACHE_S
    )
    return {
        "rows": rows(found.found, visit.query.get("page", ""), site.settings.rows_per_page),
        "is_complete": found.is_complete,
        "read_at_most": READ_AT_MOST,
    }


async def decide(site: Site, visit: Visit) -> ActionResult:
    """Commit or roll back a transaction on behalf of its producer."""
    one = await _transaction(site, visit.form.get("id", ""), visit.form.get("broker", ""))
    if visit.form.get("decision") == "commit":
        await site.admin.transactions.commit(one)
        text = f"Committed transaction {one.transaction_id}."
    elif visit.form.get("decision") == "roll back":
        await site.admin.transactions.roll_back(one)
        text = f"Rolled back transaction {one.transaction_id}."
    else:
        raise UsageError("choose commit or roll back")
    return ActionResult("/transactions", text)


async def _transaction(site: Site, transaction_id: str, broker: str) -> OpenTransaction:
    for one in (await site.admin.transactions.undecided(limit=READ_AT_MOST)).found:
        if one.transaction_id == transaction_id and one.broker == broker:
            return one
    raise NotFound(f"broker {broker} has no undecided transaction {transaction_id} any more")


PAGES: Final = [
    Page("/delayed", "delayed", delayed, "delayed"),
    Page("/transactions", "transactions", transactions, "transactions"),
]
ACTIONS: Final = [Action("/transactions", decide, "/transactions")]
