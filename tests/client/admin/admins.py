"""An administrator of a cluster that runs in memory and in virtual time."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.client.real_cluster import NAME_SERVER, RealCluster

from pocketmq.client.admin.admin import AsyncAdmin

HOST = "10.0.4.1"


@asynccontextmanager
async def admin_of(cluster: RealCluster, **options: Any) -> AsyncIterator[AsyncAdmin]:
    dependencies = cluster.dependencies(HOST)
    async with AsyncAdmin(str(NAME_SERVER), dependencies=dependencies, **{"client_ip": HOST, **options}) as admin:
        yield admin
