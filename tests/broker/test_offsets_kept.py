"""Resets that no member has received yet survive a restart."""

import pytest
from tests.broker.lives import Lives, in_virtual_time, make_topic

from pocketmq.broker.groups.offsets import OffsetTable
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.api.messages import ResetOffset
from pocketmq.protocol.bodies.topics import ConsumerOffsets, SavedOffsets

NOW = 1_700_000_000_000


def again(offsets: OffsetTable) -> OffsetTable:
    """The table after a restart."""
    restored = OffsetTable()
    restored.restore(SavedOffsets.decode(offsets.snapshot_json(NOW)))
    return restored


def reset_table() -> OffsetTable:
    offsets = OffsetTable()
    offsets.commit("g", "T", 0, 10)
    offsets.commit("g", "T", 1, 11)
    offsets.reset("g", "T", {0: 3, 1: 4})
    return offsets


def test_a_pending_reset_waits_for_its_pull_after_a_restart() -> None:
    offsets = again(reset_table())

    assert not offsets.is_changed
    assert not offsets.commit("g", "T", 0, 10)
    assert offsets.pop_reset("g", "T", 0) == 3
    assert offsets.commit("g", "T", 0, 5)
    assert (offsets.stored("g", "T", 0), offsets.stored("g", "T", 1)) == (5, 4)


def test_an_applied_reset_is_not_repeated() -> None:
    offsets = reset_table()
    offsets.snapshot_json(NOW)

    offsets.pop_reset("g", "T", 0)

    assert offsets.is_changed
    assert again(offsets).resets == {"T@g": {1: 4}}
    offsets.pop_reset("g", "T", 1)
    assert b"resetTable" not in offsets.snapshot_json(NOW)
    assert again(offsets).resets == {}


@pytest.mark.parametrize(
    "forget", [lambda o: o.delete_topic("T"), lambda o: o.delete_group("g")], ids=["topic", "group"]
)
def test_a_reset_is_deleted_with_its_topic_or_group(forget: object) -> None:
    offsets = reset_table()

    assert callable(forget)
    forget(offsets)

    assert again(offsets).resets == {}


def test_a_reset_does_not_exceed_the_remaining_log() -> None:
    offsets = again(reset_table())

    offsets.lower_to(lambda _topic, queue_id: 2 + queue_id * 10)

    assert offsets.resets == {"T@g": {0: 2, 1: 4}}


def test_a_reset_that_contradicts_the_saved_offsets_is_ignored() -> None:
    offsets = OffsetTable()
    saved = SavedOffsets(offset_table={"T@g": {0: 7}}, reset_table={"T@g": {0: 3, 1: 3}, "nonsense": {0: 1}})

    assert offsets.restore(saved) == []

    assert offsets.resets == {}


def test_a_query_of_all_offsets_does_not_return_resets() -> None:
    assert reset_table().snapshot() == ConsumerOffsets(OffsetTable().version, {"T@g": {0: 3, 1: 4}})


@pytest.mark.parametrize("crashes", [False, True], ids=["stop", "kill"])
def test_a_member_that_continued_during_the_restart_is_redirected_to_the_reset(crashes: bool) -> None:
    async def main(lives: Lives) -> None:
        async with lives.broker() as broker:
            make_topic(broker)
            client = await lives.client()
            for number in range(10):
                await client.sent(b"%d" % number)
            await client.pull(0)
            await client.commit(10)
            reset = ResetOffset("G", "T", 0, is_force=True, queue_id=0, offset=3)
            assert (await client.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)).code == ResponseCode.SUCCESS
            if crashes:
                lives.crash()

        async with lives.broker():
            client = await lives.client()
            await client.commit(10)
            moved = await client.pull(10)
            assert (await client.offset()).ext == {"offset": "3"}

        assert moved.code == ResponseCode.PULL_OFFSET_MOVED
        assert moved.ext is not None
        assert moved.ext["nextBeginOffset"] == "3"

    in_virtual_time(main)
