"""All acts, by kind. A new kind is one line here."""

from typing import Final

from conformance.python.acts import (
    administration,
    consuming,
    delays,
    filters,
    leasing,
    offsets,
    ordering,
    polling,
    requests,
    retries,
    sending,
    sharing,
    transactions,
    watching,
)

PROGRAMMES: Final = (
    sending.SENDING,
    consuming.CONSUMING,
    ordering.ORDERING,
    sharing.SHARING,
    filters.FILTERS,
    retries.RETRIES,
    leasing.LEASING,
    delays.DELAYS,
    transactions.TRANSACTIONS,
    requests.REQUESTS,
    polling.POLLING,
    offsets.OFFSETS,
    administration.ADMINISTRATION,
    watching.WATCHING,
)
