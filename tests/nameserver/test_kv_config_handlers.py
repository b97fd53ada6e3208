"""Requests about the KV config over a connection, down to the disk."""

import errno
from pathlib import Path

from tests.nameserver.talk import ask, started

from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.nameserver.settings import NameServerSettings
from pocketmq.protocol.api.administration import ForNamespace, KvKey, PutKvConfig
from pocketmq.testing import FaultyFiles, run

SETTINGS = NameServerSettings(kv_config_path=Path("/data/kvConfig.json"))


def test_a_value_is_stored_returned_listed_and_deleted() -> None:
    async def main() -> None:
        async with started(SETTINGS, files=FaultyFiles()) as (_, peer):
            put = await ask(peer, RequestCode.PUT_KV_CONFIG, PutKvConfig("ns", "k", "v"))
            got = await ask(peer, RequestCode.GET_KV_CONFIG, KvKey("ns", "k"))
            listed = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, ForNamespace("ns"))
            deleted = await ask(peer, RequestCode.DELETE_KV_CONFIG, KvKey("ns", "k"))
            empty = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, ForNamespace("ns"))

            assert (put.code, put.ext, put.body) == (ResponseCode.SUCCESS, None, b"")
            assert got.ext == {"value": "v"}
            assert listed.body == b'{"table":{"k":"v"}}'
            assert deleted.code == ResponseCode.SUCCESS
            assert empty.body == b'{"table":{}}'

    run(main())


def test_a_missing_value_is_reported_in_rocketmqs_words() -> None:
    async def main() -> None:
        async with started() as (_, peer):
            got = await ask(peer, RequestCode.GET_KV_CONFIG, KvKey("none", "none"))
            listed = await ask(peer, RequestCode.GET_KVLIST_BY_NAMESPACE, ForNamespace("none"))
            deleted = await ask(peer, RequestCode.DELETE_KV_CONFIG, KvKey("none", "none"))

            assert (got.code, got.remark) == (22, "No config item, Namespace: none Key: none")
            assert (listed.code, listed.remark) == (22, "No config item, Namespace: none")
            assert deleted.code == ResponseCode.SUCCESS

    run(main())


def test_values_exist_after_a_restart() -> None:
    async def main() -> None:
        files = FaultyFiles()
        async with started(SETTINGS, files=files) as (_, peer):
            await ask(peer, RequestCode.PUT_KV_CONFIG, PutKvConfig("ns", "k", "v"))

        async with started(SETTINGS, files=files) as (_, peer):
            got = await ask(peer, RequestCode.GET_KV_CONFIG, KvKey("ns", "k"))

            assert got.ext == {"value": "v"}

    run(main())


def test_a_full_disk_is_reported_and_the_server_continues() -> None:
    async def main() -> None:
        files = FaultyFiles()
        async with started(SETTINGS, files=files) as (_, peer):
            with files.fail("write", errno.ENOSPC, path="*"):
                put = await ask(peer, RequestCode.PUT_KV_CONFIG, PutKvConfig("ns", "k", "v"))
            got = await ask(peer, RequestCode.GET_KV_CONFIG, KvKey("ns", "k"))

            assert put.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert "kvConfig.json could not be saved: No space left on device" in (put.remark or "")
            assert got.code == ResponseCode.QUERY_NOT_FOUND

    run(main())
