"""Offsets: committed, queried, reset, cloned and saved."""

from collections.abc import Callable, Iterable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden import GOLDEN, Captured, captured, needs_golden

from pocketmq.broker.groups.offsets import (
    BOUNDS_KEPT_MS,
    MAX_RECREATED,
    NOTHING_TO_CORRECT,
    OffsetTable,
    QueueFacts,
    pushed_target,
    reject_broker_group,
    reset_target,
)
from pocketmq.codes import RequestCode
from pocketmq.errors import ImpossibleRequest, InvalidName, NoPermission
from pocketmq.model.names import HALF_TOPIC, TRANSACTION_CHECK_GROUP, parse_group, parse_topic
from pocketmq.protocol.api.messages import QueryConsumerOffset, UpdateConsumerOffset
from pocketmq.protocol.bodies.topics import ConsumerOffsets, CorrectionOffsets, DataVersion, SavedOffsets
from pocketmq.protocol.java_json import read_json, write_pretty_json

NOW = 1_700_000_000_000
USED = QueueFacts(0, 10, first_in_memory=True)


@pytest.fixture
def offsets() -> OffsetTable:
    return OffsetTable()


def table_of(offsets: OffsetTable) -> dict[str, dict[int, int]]:
    return offsets.snapshot().offset_table


def saved(offsets: OffsetTable) -> dict[str, dict[int, int]]:
    return ConsumerOffsets.decode(offsets.snapshot_json(NOW)).offset_table


# committing


def test_a_commit_overwrites_and_a_lower_one_is_counted(offsets: OffsetTable) -> None:
    for offset in (5, 7, 6, 6, 8):
        assert offsets.commit("g", "T", 0, offset)

    assert offsets.stored("g", "T", 0) == 8
    assert offsets.commits_lowered == 1
    assert offsets.commits_ignored == 0


def test_groups_topics_and_queues_have_separate_offsets(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "T", 1, 2)
    offsets.commit("g", "U", 0, 3)
    offsets.commit("h", "T", 0, 4)

    assert table_of(offsets) == {"T@g": {0: 1, 1: 2}, "U@g": {0: 3}, "T@h": {0: 4}}
    assert offsets.stored("h", "U", 0) is None
    assert offsets.stored("nobody", "T", 0) is None


@pytest.mark.parametrize(
    ("queue_id", "offset", "taken"), [(0, 0, True), (0, -1, False), (-1, 0, False), (0, 2**63 - 1, True)]
)
def test_an_invalid_commit_is_ignored_and_counted(
    offsets: OffsetTable, queue_id: int, offset: int, taken: bool
) -> None:
    assert offsets.commit("g", "T", queue_id, offset) is taken

    assert offsets.commits_ignored == (not taken)
    assert offsets.topics_of("g") == (["T"] if taken else [])


def test_a_row_has_a_limited_number_of_queues() -> None:
    offsets = OffsetTable(max_queues=3)

    taken = [offsets.commit("g", "T", queue_id, 1) for queue_id in range(4)]

    assert taken == [True, True, True, False]
    assert offsets.commit("g", "T", 2, 5)
    assert offsets.commit("g", "U", 3, 1)
    for queue_id in range(5):
        offsets.record_pull("h", "T", queue_id, 1)
    assert offsets.pulled("h", "T", 2) == 1
    assert offsets.pulled("h", "T", 3) is None


# asking


NEW_QUEUE = QueueFacts(0, 0, first_in_memory=False)
SWAPPED = QueueFacts(0, 10, first_in_memory=False)
SHORTENED = QueueFacts(1, 10, first_in_memory=True)
EMPTIED = QueueFacts(10, 10, first_in_memory=False)


@pytest.mark.parametrize(
    ("queue", "zero_if_new", "answer"),
    [
        (USED, True, 0),
        (USED, False, None),
        (SWAPPED, True, None),
        (SHORTENED, True, None),
        (EMPTIED, True, None),
        (QueueFacts(-1, 10, first_in_memory=True), True, 0),
        (NEW_QUEUE, True, 0),
        (NEW_QUEUE, False, None),
        (None, True, None),
    ],
)
def test_the_start_of_a_group_without_offset_depends_on_the_queue(
    offsets: OffsetTable, queue: QueueFacts | None, zero_if_new: bool, answer: int | None
) -> None:
    assert offsets.query("g", "T", 0, queue, zero_if_new=zero_if_new) == answer


@pytest.mark.parametrize("queue", [USED, SWAPPED, SHORTENED, EMPTIED, NEW_QUEUE, None])
def test_a_group_with_an_offset_starts_there_in_any_state_of_the_queue(
    offsets: OffsetTable, queue: QueueFacts | None
) -> None:
    offsets.commit("g", "T", 0, 4)

    assert offsets.query("g", "T", 0, queue) == 4
    assert offsets.query("g", "T", 0, queue, zero_if_new=False) == 4


def test_a_query_changes_nothing(offsets: OffsetTable) -> None:
    offsets.query("g", "T", 0, USED)
    offsets.pop_reset("g", "T", 0)
    offsets.record_pull("g", "T", 0, 7)

    assert offsets.topics_of("g") == []
    assert offsets.groups_of("T") == []
    assert table_of(offsets) == {}
    assert not offsets.is_changed


def test_pulls_are_ahead_of_commits(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 3)
    assert offsets.pulled("g", "T", 0) == 3

    offsets.record_pull("g", "T", 0, 9)

    assert offsets.pulled("g", "T", 0) == 9
    assert offsets.stored("g", "T", 0) == 3
    assert offsets.pulled("g", "T", 1) is None
    assert offsets.pulled("nobody", "T", 0) is None


def test_topics_and_groups_are_listed(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "U", 0, 1)
    offsets.commit("h", "T", 0, 1)

    assert offsets.topics_of("g") == ["T", "U"]
    assert offsets.topics_of("h") == ["T"]
    assert offsets.groups_of("T") == ["g", "h"]
    assert offsets.groups_of("V") == []


# resetting


def test_the_next_pull_of_each_queue_gets_a_reset_once(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 9)

    offsets.reset("g", "T", {0: 2, 1: 3})

    assert offsets.stored("g", "T", 0) == 2
    assert offsets.query("g", "T", 1, USED) == 3
    assert offsets.pop_reset("g", "T", 0) == 2
    assert offsets.pop_reset("g", "T", 0) is None
    assert offsets.pop_reset("g", "T", 1) == 3
    assert offsets.pop_reset("h", "T", 0) is None


def test_commits_are_ignored_until_a_pull_got_the_reset(offsets: OffsetTable) -> None:
    offsets.reset("g", "T", {0: 2})

    assert not offsets.commit("g", "T", 0, 9)
    assert not offsets.commit("g", "T", 0, 2)
    assert offsets.commit("g", "T", 1, 9)
    assert offsets.stored("g", "T", 0) == 2

    offsets.pop_reset("g", "T", 0)
    assert offsets.commit("g", "T", 0, 9)
    assert offsets.commits_ignored == 2


def test_a_later_reset_replaces_an_earlier_one(offsets: OffsetTable) -> None:
    offsets.reset("g", "T", {0: 2})
    offsets.reset("g", "T", {0: 5})

    assert offsets.pop_reset("g", "T", 0) == 5
    assert offsets.pop_reset("g", "T", 0) is None


def test_after_a_reset_no_message_is_in_flight(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 3)
    offsets.record_pull("g", "T", 0, 9)
    offsets.record_pull("g", "T", 1, 9)

    offsets.reset("g", "T", {0: 2})

    assert offsets.pulled("g", "T", 0) == 2
    assert offsets.pulled("g", "T", 1) == 9


def test_an_offset_beyond_the_end_is_lowered_and_saved(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 5)
    offsets.commit("g", "T", 1, 6)
    offsets.commit("h", "T", 1, 5)
    offsets.snapshot_json(1)

    lowered = offsets.lower_to(lambda topic, queue_id: 5)

    assert lowered == ["T@g"]
    assert [offsets.stored("g", "T", queue_id) for queue_id in (0, 1)] == [5, 5]
    assert offsets.is_changed
    assert offsets.lower_to(lambda topic, queue_id: 5) == []


def test_only_the_broker_sets_the_offsets_of_its_transactions() -> None:
    reject_broker_group("CID_RMQ_SYS_OTHER")

    with pytest.raises(NoPermission, match="belongs to the broker itself"):
        reject_broker_group("CID_RMQ_SYS_TRANS")


def test_a_reset_of_no_queue_is_refused(offsets: OffsetTable) -> None:
    with pytest.raises(ImpossibleRequest, match="no queue") as refused:
        offsets.reset("g", "T", {})

    assert refused.value.code == 1


@pytest.mark.parametrize(("offset", "inside"), [(4, False), (5, True), (10, True), (11, False), (-2, False)])
def test_a_reset_needs_an_offset_inside_the_queue(offset: int, inside: bool) -> None:
    queue = QueueFacts(5, 10, first_in_memory=False)

    if inside:
        assert reset_target(queue, offset, -1, lambda _: 99) == offset
    else:
        with pytest.raises(ImpossibleRequest, match="which has 5 to 10"):
            reset_target(queue, offset, -1, lambda _: 99)


@pytest.mark.parametrize(("offset", "time_ms", "target"), [(None, -1, 10), (-1, -1, 10), (None, 0, 7), (-1, 1, 7)])
def test_a_reset_without_an_offset_uses_the_time(offset: int | None, time_ms: int, target: int) -> None:
    assert reset_target(USED, offset, time_ms, lambda _: 7) == target


@pytest.mark.parametrize(
    ("target", "stored", "force", "told"),
    [(5, 9, False, 5), (9, 5, False, 5), (9, 5, True, 9), (5, 9, True, 5), (5, None, False, 5), (5, None, True, 5)],
)
def test_only_a_forced_reset_moves_members_forward(target: int, stored: int | None, force: bool, told: int) -> None:
    assert pushed_target(target, stored, force=force) == told


# cloning, correcting, deleting


def test_a_clone_has_the_offsets_of_the_other_group(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 3)
    offsets.commit("g", "U", 0, 4)
    offsets.commit("h", "T", 1, 9)
    offsets.reset("h", "T", {0: 7})

    assert offsets.clone("g", "h") == ["T", "U"]
    offsets.commit("g", "T", 0, 5)

    assert table_of(offsets) == {"T@g": {0: 5}, "U@g": {0: 4}, "T@h": {0: 3}, "U@h": {0: 4}}
    assert offsets.pop_reset("h", "T", 0) is None


def test_only_requested_topics_with_offsets_are_cloned(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 3)
    offsets.commit("g", "U", 0, 4)

    assert offsets.clone("g", "h", ["U", "V"]) == ["U"]
    assert offsets.clone("nobody", "h") == []
    assert offsets.clone("g", "g") == []
    assert offsets.topics_of("h") == ["U"]


def test_corrections_are_the_smallest_offsets_of_all_groups(offsets: OffsetTable) -> None:
    offsets.commit("slow", "T", 0, 3)
    offsets.commit("slow", "T", 1, 30)
    offsets.commit("fast", "T", 0, 7)
    offsets.commit("fast", "T", 1, 20)
    offsets.commit("fast", "U", 0, 1)

    assert offsets.corrections("T", "fast", [], lambda _: 0) == {0: 3, 1: 20}
    assert offsets.corrections("T", "fast", ["slow"], lambda _: 0) == {0: 7, 1: 20}
    assert offsets.corrections("T", "slow", ["slow"], lambda _: 0) == {0: NOTHING_TO_CORRECT, 1: 20}
    assert offsets.corrections("T", "nobody", [], lambda _: 5) == {0: 7, 1: 20}
    assert offsets.corrections("T", "slow", ["fast"], lambda _: 5) == {1: 30}
    assert offsets.stored("slow", "T", 0) == 3


def test_deleting_a_topic_or_group_deletes_pending_resets(offsets: OffsetTable) -> None:
    for group in ("g", "h"):
        for topic in ("T", "U"):
            offsets.commit(group, topic, 0, 1)
    offsets.reset("g", "T", {0: 5})

    offsets.delete_topic("T")
    assert table_of(offsets) == saved(offsets) == {"U@g": {0: 1}, "U@h": {0: 1}}
    assert offsets.pop_reset("g", "T", 0) is None

    offsets.delete_group("g")
    assert table_of(offsets) == saved(offsets) == {"U@h": {0: 1}}

    offsets.delete_topic("U")
    offsets.delete_group("nobody")
    assert table_of(offsets) == saved(offsets) == {}
    assert not offsets.is_changed


def test_a_deleted_and_recreated_row_is_saved_in_its_new_state(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "T", 1, 1)
    offsets.delete_topic("T")
    assert offsets.redirect_older("g", "T", 0, 0, 0) is None
    offsets.commit("g", "T", 0, 2)

    assert saved(offsets) == {"T@g": {0: 2}}


# an older log


def test_after_a_crash_offsets_beyond_the_end_are_of_the_old_log_until_a_pull(
    offsets: OffsetTable,
) -> None:
    offsets.commit("g", "T", 0, 80)
    offsets.set_bounds({"T": {0: 90}}, NOW)

    assert not offsets.commit("g", "T", 0, 100)
    assert offsets.redirect_older("g", "T", 0, 100, 0) == 80
    assert offsets.redirect_older("g", "T", 0, 100, 0) is None
    assert offsets.commit("g", "T", 0, 80)


def test_after_a_crash_a_group_without_commits_restarts_unless_it_queries_its_offset(
    offsets: OffsetTable,
) -> None:
    offsets.set_bounds({"T": {0: 90}}, NOW)

    assert not offsets.commit("g", "T", 0, 100)
    assert offsets.redirect_older("g", "T", 0, 100, 7) == 7
    assert offsets.redirect_older("g", "T", 1, 1, 0) == 0, "all of the queue was lost"
    assert offsets.query("new", "T", 0, QueueFacts(7, 120, False)) is None
    offsets.confirm_log("new", "T", 0)
    assert offsets.redirect_older("new", "T", 0, 120, 7) is None
    assert offsets.commit("new", "T", 0, 120)


def test_after_a_crash_the_broker_commits_its_progress_of_transaction_checks(offsets: OffsetTable) -> None:
    offsets.commit(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0, 80)
    offsets.set_bounds({HALF_TOPIC: {0: 90}}, NOW)

    assert offsets.commit(TRANSACTION_CHECK_GROUP, HALF_TOPIC, 0, 100)


def started_again(offsets: OffsetTable) -> OffsetTable:
    restored = OffsetTable()
    restored.restore(SavedOffsets.decode(offsets.snapshot_json(NOW)))
    restored.keep_bounds(NOW)
    return restored


def test_a_member_that_is_away_during_a_crash_and_a_restart_still_has_offsets_of_an_older_log(
    offsets: OffsetTable,
) -> None:
    offsets.commit("g", "T", 0, 80)
    offsets.set_bounds({"T": {0: 90}}, NOW)
    offsets = started_again(offsets)

    assert not offsets.commit("g", "T", 0, 100, end=200)
    assert offsets.redirect_older("g", "T", 0, 100, 0) == 80
    assert started_again(offsets).redirect_older("g", "T", 0, 100, 0) is None, "it has been redirected"


def test_bounds_of_two_crashes_are_the_smaller_ones_for_members_that_were_away_during_both(
    offsets: OffsetTable,
) -> None:
    offsets.commit("away", "T", 0, 80)
    offsets.commit("there", "T", 0, 80)
    offsets.set_bounds({"T": {0: 90}}, NOW)
    assert offsets.redirect_older("there", "T", 0, 90, 0) is None
    offsets = started_again(offsets)
    offsets.set_bounds({"T": {0: 200}, "New": {0: 5}}, NOW)

    assert offsets.redirect_older("there", "T", 0, 150, 0) is None
    assert offsets.redirect_older("away", "T", 0, 100, 0) == 80
    offsets = started_again(offsets)
    offsets.set_bounds({"T": {0: 120}, "New": {0: 5}}, NOW)
    assert offsets.redirect_older("there", "T", 0, 150, 0) == 80


def test_a_broker_that_has_run_for_a_day_drops_the_bounds(offsets: OffsetTable) -> None:
    offsets.set_bounds({"T": {0: 90}}, NOW)
    offsets = started_again(offsets)
    offsets.keep_bounds(NOW + BOUNDS_KEPT_MS)
    assert b"recovered" in offsets.snapshot_json(NOW + BOUNDS_KEPT_MS + 1)
    assert not offsets.commit("g", "T", 0, 100)

    assert b"recovered" not in offsets.snapshot_json(NOW + 2 * BOUNDS_KEPT_MS + 1)
    assert offsets.commit("g", "T", 0, 100)


def test_a_redirected_member_cannot_save_its_older_offset_before_it_has_pulled_so_far_again(
    offsets: OffsetTable,
) -> None:
    offsets.commit("g", "T", 0, 80)
    offsets.set_bounds({"T": {0: 90}}, NOW)
    assert offsets.redirect_older("g", "T", 0, 100, 0) == 80

    assert not offsets.commit("g", "T", 0, 100, end=500)  # RocketMQ's members save their offsets every 5 s
    offsets.record_pull("g", "T", 0, 95)
    assert offsets.commit("g", "T", 0, 95, end=500)
    assert not offsets.commit("g", "T", 0, 100, end=500)
    offsets.record_pull("g", "T", 0, 127)

    assert offsets.commit("g", "T", 0, 100, end=500)
    assert offsets.commit("g", "T", 0, 200, end=500)


@pytest.mark.parametrize("change", ["reset", "program"])
def test_an_administrator_may_set_any_offset_of_a_redirected_group(offsets: OffsetTable, change: str) -> None:
    offsets.commit("g", "T", 0, 80)
    offsets.set_bounds({"T": {0: 90}}, NOW)
    assert offsets.redirect_older("g", "T", 0, 100, 0) == 80

    if change == "reset":
        offsets.reset("g", "T", {0: 100})
        assert offsets.pop_reset("g", "T", 0) == 100
    else:
        offsets.confirm_log("g", "T", 0)

    assert offsets.commit("g", "T", 0, 100)


def test_a_group_without_commits_also_starts_a_recreated_topic_at_zero(
    offsets: OffsetTable,
) -> None:
    offsets.record_pull("g", "T", 0, 100)
    offsets.delete_topic("T")

    assert offsets.redirect_older("g", "T", 0, 100, 0) == 0
    assert offsets.query("g", "T", 1, QueueFacts(0, 9, False), zero_if_new=False) == 0


def test_after_a_crash_commits_below_the_end_are_accepted(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 80)
    offsets.set_bounds({"T": {0: 90}}, NOW)

    assert offsets.commit("g", "T", 0, 85)
    assert offsets.redirect_older("g", "T", 0, 90, 0) is None
    assert offsets.commit("g", "T", 0, 100)


def test_deleted_messages_are_not_pulled_again(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 10)
    offsets.set_bounds({"T": {0: 90}}, NOW)

    assert offsets.redirect_older("g", "T", 0, 100, 40) == 40
    assert offsets.stored("g", "T", 0) == 40
    assert offsets.resume_at("g", "T", 0, 50, 90) == 50


def test_a_recreated_topic_starts_at_zero_for_known_groups(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 5)
    offsets.delete_topic("T")
    restored = OffsetTable()
    restored.restore(SavedOffsets.decode(offsets.snapshot_json(NOW)))

    for table in (offsets, restored):
        assert not table.commit("g", "T", 0, 5)
        assert not table.commit("g", "T", 1, 5)
        assert table.query("g", "T", 1, QueueFacts(0, 9, False), zero_if_new=False) == 0
        assert table.query("other", "T", 1, QueueFacts(0, 9, False)) is None
        assert table.redirect_older("g", "T", 0, 5, 0) == 0
        assert table.stored("g", "T", 0) == 0
        assert table.redirect_older("g", "T", 0, 5, 0) is None
        table.record_pull("g", "T", 0, 7)
        assert table.commit("g", "T", 0, 7)


def test_a_reset_or_deletion_of_the_group_ends_the_redirect_to_the_new_log(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 5)
    offsets.commit("h", "T", 0, 5)
    offsets.delete_topic("T")

    offsets.reset("g", "T", {0: 3})
    offsets.delete_group("h")

    assert offsets.pop_reset("g", "T", 0) == 3
    assert offsets.commit("g", "T", 0, 4)
    assert offsets.query("h", "T", 0, QueueFacts(0, 9, False)) is None


def test_the_remembered_groups_of_deleted_topics_are_limited(offsets: OffsetTable) -> None:
    for number in range(MAX_RECREATED + 1):
        offsets.commit("g", f"T{number}", 0, 5)
        offsets.delete_topic(f"T{number}")

    assert offsets.query("g", "T0", 0, None) is None
    assert offsets.query("g", "T1", 0, None) == 0


# keeping


def test_the_version_changes_with_a_save_that_has_changes(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 1)
    first = offsets.snapshot_json(NOW)
    offsets.commit("g", "T", 0, 1)
    same = offsets.snapshot_json(NOW + 1)
    offsets.commit("g", "T", 0, 2)
    second = offsets.snapshot_json(NOW + 2)

    assert same == first != second
    assert ConsumerOffsets.decode(first).data_version == DataVersion(1, 0, NOW)
    assert ConsumerOffsets.decode(second).data_version == offsets.version == DataVersion(2, 0, NOW + 2)


def test_a_table_knows_whether_it_has_unsaved_changes(offsets: OffsetTable) -> None:
    changed = [offsets.is_changed]
    for offset in (1, 1, 2):
        offsets.commit("g", "T", 0, offset)
        changed.append(offsets.is_changed)
        offsets.snapshot_json(NOW)
    changed.append(offsets.is_changed)

    assert changed == [False, True, False, True, False]


def test_the_saved_bytes_are_the_snapshot(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 1)
    offsets.commit("g", "T", 10, 2**63 - 1)
    offsets.commit("g", "%RETRY%g", 0, 0)

    data = offsets.snapshot_json(NOW)

    assert ConsumerOffsets.decode(data) == offsets.snapshot()
    assert data == (
        b'{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1700000000000},'
        b'"offsetTable":{"T@g":{"0":1,"10":9223372036854775807},"%RETRY%g@g":{"0":0}}}'
    )


def test_an_empty_table_is_saved_too(offsets: OffsetTable) -> None:
    assert ConsumerOffsets.decode(offsets.snapshot_json(NOW)) == ConsumerOffsets()


def test_a_snapshot_does_not_change_with_the_table(offsets: OffsetTable) -> None:
    offsets.commit("g", "T", 0, 1)
    taken = offsets.snapshot()

    offsets.commit("g", "T", 0, 2)

    assert taken.offset_table == {"T@g": {0: 1}}


def test_invalid_keys_are_logged_and_ignored(offsets: OffsetTable) -> None:
    keys = ["T@g", "T", "@g", "T@", "T@g@h", ""]

    strange = offsets.restore(ConsumerOffsets(offset_table={key: {0: 1, 1: -1} for key in keys} | {"U@g": {0: -1}}))

    assert strange == ["T", "@g", "T@", "T@g@h", ""]
    assert table_of(offsets) == saved(offsets) == {"T@g": {0: 1}}


@pytest.mark.parametrize("check", [parse_topic, parse_group])
def test_names_cannot_contain_the_separator_of_keys(check: Callable[[str], str]) -> None:
    with pytest.raises(InvalidName, match="'@'"):
        check("a@b")


NAMES = st.sampled_from(["a", "b", "%RETRY%a"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), NAMES, NAMES, st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.just("reset"), NAMES, NAMES, st.integers(0, 2), st.integers(0, 5)),
        st.tuples(st.just("pull"), NAMES, NAMES, st.integers(0, 2)),
        st.tuples(st.just("clone"), NAMES, NAMES),
        st.tuples(st.just("delete_topic"), NAMES),
        st.tuples(st.just("delete_group"), NAMES),
        st.tuples(st.just("save")),
    ),
    max_size=40,
)


@given(STEPS)
def test_random_operations_save_and_restore_the_table(steps: Iterable[tuple[object, ...]]) -> None:
    offsets = OffsetTable()
    for name, *arguments in steps:
        if name == "save":
            offsets.snapshot_json(NOW)
        elif name == "reset":
            group, topic, queue_id, offset = arguments
            offsets.reset(str(group), str(topic), {int(str(queue_id)): int(str(offset))})
        else:
            getattr(offsets, "pop_reset" if name == "pull" else str(name))(*arguments)

    data = offsets.snapshot_json(NOW)
    again = OffsetTable()
    assert ConsumerOffsets.decode(data) == offsets.snapshot()
    assert again.restore(offsets.snapshot()) == []
    assert again.snapshot() == offsets.snapshot()
    assert ConsumerOffsets.decode(again.snapshot_json(NOW)) == again.snapshot()


@needs_golden
@pytest.mark.parametrize("kind", ["clean", "live"])
@pytest.mark.parametrize("version", ["5.3.3", "4.9.7"])
def test_the_table_of_an_apache_broker_is_saved_unchanged(version: str, kind: str) -> None:
    data = (GOLDEN / "store" / version / kind / "config" / "consumerOffset.json").read_bytes()
    offsets = OffsetTable()

    strange = offsets.restore(ConsumerOffsets.decode(data))

    was = read_json(data)
    was.pop("groupTopicMap", None)
    was.setdefault("dataVersion", {"counter": 0, "stateVersion": 0, "timestamp": 0})
    assert strange == []
    assert read_json(write_pretty_json(offsets.snapshot())) == was
    assert msgspec.json.decode(offsets.snapshot_json(NOW), type=ConsumerOffsets, strict=False) == offsets.snapshot()


# what the real broker answered


def _answers(offsets: OffsetTable, frames: Iterable[Captured]) -> list[tuple[str, int | None]]:
    """Replay the commits; returns the answers to the queries. Queue 0 of a topic has messages, other queues never
    had any.
    """
    answers = []
    for frame in frames:
        command = frame.command
        if frame.answers is not None or frame.link != "broker" or not command.ext:
            continue
        if command.code == RequestCode.UPDATE_CONSUMER_OFFSET and command.ext["topic"] != "NoRawTopic":
            update = UpdateConsumerOffset.decode(command.ext)
            offsets.commit(update.consumer_group, update.topic, update.queue_id, update.commit_offset)
        elif command.code == RequestCode.QUERY_CONSUMER_OFFSET:
            query = QueryConsumerOffset.decode(command.ext)
            queue = None if query.topic == "NoRawTopic" else NEW_QUEUE if query.queue_id else USED
            answer = offsets.query(
                query.consumer_group,
                query.topic,
                query.queue_id,
                queue,
                zero_if_new=query.set_zero_if_not_found is not False,
            )
            answers.append((f"{query.topic}:{query.queue_id}", answer))
    return answers


def _real_answers(frames: Iterable[Captured]) -> list[int | None]:
    answers = [frame.command for frame in frames if frame.answers == RequestCode.QUERY_CONSUMER_OFFSET]
    return [None if answer.code else int((answer.ext or {})["offset"]) for answer in answers if answer.code in (0, 22)]


@needs_golden
def test_queries_get_the_answers_of_the_captured_broker() -> None:
    frames = captured("wire/5.3.3/json/raw.jsonl")
    offsets = OffsetTable()

    answers = _answers(offsets, frames)

    assert [answer for _, answer in answers] == _real_answers(frames) == [0, None, None, 1]
    assert table_of(offsets) == {"RawTopic@CG_raw": {0: 1}}
    assert offsets.commits_lowered == 1
    (corrected,) = (frame.command for frame in frames if frame.answers == RequestCode.QUERY_CORRECTION_OFFSET)
    assert CorrectionOffsets(offsets.corrections("RawTopic", "CG_raw", [], lambda _: 0)) == CorrectionOffsets.decode(
        corrected.body
    )


@needs_golden
def test_only_a_queue_that_never_had_a_message_gets_another_answer() -> None:
    frames = captured("wire/5.3.3/json/offsets.jsonl")

    answers = _answers(OffsetTable(), frames)

    assert answers == [("OffsetsTopic:0", 0), ("OffsetsTopic:1", 0), ("OffsetsTopic:0", 1)]
    assert _real_answers(frames) == [0, None, 1]
