"""Key-value configuration and settings of name servers."""

import pytest
from tests.client.admin.admins import admin_of
from tests.client.real_cluster import NAME_SERVER, real_cluster

from pocketmq.errors import UsageError
from pocketmq.testing import run


def test_keys_are_put_read_and_deleted() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            assert await admin.name_servers.value("app", "colour") is None
            assert await admin.name_servers.values("app") == {}

            await admin.name_servers.put("app", "colour", "blue")

            assert await admin.name_servers.value("app", "colour") == "blue"
            assert await admin.name_servers.values("app") == {"colour": "blue"}
            await admin.name_servers.delete("app", "colour")
            assert await admin.name_servers.value("app", "colour") is None

    run(main())


def test_an_order_configuration_is_set_and_deleted() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await admin.name_servers.put_order("T", {"broker-a": 4, "broker-b": 2})

            assert await admin.name_servers.order("T") == {"broker-a": 4, "broker-b": 2}
            assert await admin.name_servers.value("ORDER_TOPIC_CONFIG", "T") == "broker-a:4;broker-b:2"
            await admin.name_servers.delete_order("T")
            assert await admin.name_servers.order("T") == {}
            with pytest.raises(UsageError, match="at least one queue"):
                await admin.name_servers.put_order("T", {"broker-a": 0})

    run(main())


def test_settings_are_read_and_changed() -> None:
    async def main() -> None:
        async with real_cluster() as c, admin_of(c) as admin:
            await admin.name_servers.change_settings({"orderMessageEnable": "true"})

            settings = await admin.name_servers.settings()

            assert settings[str(NAME_SERVER)]["orderMessageEnable"] == "true"

    run(main())
