"""Detours: what becomes of sends that do not simply go to their queue."""

from pocketmq.broker.drafts import Draft
from pocketmq.broker.handlers.recalling import recall_handle_for
from pocketmq.broker.retries import Retries
from pocketmq.broker.settings import SettingsInUse
from pocketmq.broker.transactions.half import as_half
from pocketmq.errors import NoPermission
from pocketmq.model import properties as names
from pocketmq.model.names import is_retry
from pocketmq.protocol.api.sending import SendMessage


class Detours:
    """Changes drafts on their way from a client to the appender."""

    def __init__(self, retries: Retries, settings: SettingsInUse) -> None:
        self._retries = retries
        self._settings = settings

    def take(self, draft: Draft, header: SendMessage, version: int) -> None:
        """A retry may become a dead letter; a message of a transaction that is not decided yet waits as a half message."""
        if is_retry(draft.topic):
            self._retries.retarget_resend(draft, header, version)
        if self._is_half(draft):
            as_half(draft)

    def _is_half(self, draft: Draft) -> bool:
        if draft.properties.get(names.TRANSACTION_PREPARED, "").lower() != "true":
            return False
        if draft.reconsume_times > 0 and draft.properties.get(names.DELAY, "0") != "0":
            return False
        if self._settings.now.transactions_rejected:
            raise NoPermission("this broker takes no messages of transactions: rejectTransactionMessage is on")
        return True

    def recall_handle(self, draft: Draft) -> str | None:
        """By which the sender of a timed message can recall it; asked when the draft has been routed."""
        return recall_handle_for(draft, self._settings.now.broker_name)
