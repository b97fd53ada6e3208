"""What name servers remember by themselves: keys and values by namespace, the fixed queues of ordered topics, their settings.

Each of them is told, because they share nothing. One is asked: all of them should know the same.
"""

from collections.abc import Mapping

from pocketmq.client.administration.reach import Reach
from pocketmq.client.administration.topics import ORDER_NAMESPACE
from pocketmq.codes import RequestCode
from pocketmq.errors import NotFound, UsageError
from pocketmq.protocol.api.routes import DeleteKvConfig, GetKvConfig, GetKvList, KvConfigReply, PutKvConfig
from pocketmq.protocol.bodies.key_values import KVTable
from pocketmq.protocol.bodies.properties_text import read_properties, write_properties
from pocketmq.protocol.command import Command
from pocketmq.protocol.fields import read_fields
from pocketmq.protocol.java_json import read_body


class NameServerAdmin:
    """Name servers of the cluster."""

    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def values(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace."""
        try:
            answer = await self._ask(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKvList(namespace))
        except NotFound:
            return {}
        return dict(read_body(KVTable, answer.body).table)

    async def value(self, namespace: str, key: str) -> str | None:
        try:
            answer = await self._ask(RequestCode.GET_KV_CONFIG, GetKvConfig(namespace, key))
        except NotFound:
            return None
        return read_fields(KvConfigReply, answer.ext).value

    async def put(self, namespace: str, key: str, value: str) -> None:
        await self._reach.tell_name_servers(RequestCode.PUT_KV_CONFIG, PutKvConfig(namespace, key, value))

    async def delete(self, namespace: str, key: str) -> None:
        await self._reach.tell_name_servers(RequestCode.DELETE_KV_CONFIG, DeleteKvConfig(namespace, key))

    async def order(self, topic: str) -> dict[str, int]:
        """The fixed number of queues of an ordered topic, by broker; empty when none is fixed."""
        text = await self.value(ORDER_NAMESPACE, self._reach.topic(topic)) or ""
        pairs = (word.partition(":") for word in text.split(";"))
        return {broker: int(count) for broker, _, count in pairs if broker and count.isdecimal()}

    async def put_order(self, topic: str, queues: Mapping[str, int]) -> None:
        """Fix the queues of an ordered topic, by broker, so that they stay the same while a broker is away.

        Name servers tell it to clients only when they are set to: orderMessageEnable.
        """
        if not queues or any(count < 1 for count in queues.values()):
            raise UsageError(f"an order needs brokers with at least one queue each, not {dict(queues)}")
        text = ";".join(f"{broker}:{count}" for broker, count in queues.items())
        await self.put(ORDER_NAMESPACE, self._reach.topic(topic), text)

    async def delete_order(self, topic: str) -> None:
        await self.delete(ORDER_NAMESPACE, self._reach.topic(topic))

    async def settings(self) -> dict[str, dict[str, str]]:
        """The settings of each name server, by its address."""
        addresses = self._reach.instance.name_servers.addresses
        answers = await self._reach.gather(
            addresses, lambda address: self._reach.instance.links.ask(address, RequestCode.GET_NAMESRV_CONFIG)
        )
        return {str(at): read_properties(answer.body) for at, answer in zip(addresses, answers, strict=True)}

    async def change_settings(self, changes: Mapping[str, str]) -> None:
        """Change settings of all name servers while they run; they refuse those that they can only take at their start."""
        await self._reach.tell_name_servers(RequestCode.UPDATE_NAMESRV_CONFIG, body=write_properties(changes))

    async def _ask(self, code: RequestCode, header: GetKvList | GetKvConfig) -> Command:
        return await self._reach.instance.name_servers.ask(code, header)
