"""What is in a lake, commit by commit."""

import pytest
from tests.pipelines.archive.made_files import OTHER, QUEUE, commit, data_file, stretch

from pocketmq.errors import WrongState
from pocketmq.pipelines.archive.manifest import Commit, Manifest, Span, in_rounds, missing_ranges, not_covered
from pocketmq.spark.read.offsets import Cause, Lost


def filled() -> Manifest:
    manifest = Manifest()
    manifest.add(
        commit(
            1, data_file("a", stretch(0, 10), stretch(5, 8, OTHER), first_ms=100, last_ms=200), ends=(stretch(0, 10),)
        )
    )
    manifest.add(commit(2, data_file("b", stretch(10, 20), first_ms=200, last_ms=300), ends=(stretch(10, 20),)))
    return manifest


def paths(files: object) -> list[str]:
    assert isinstance(files, list)
    return [file.path.rpartition("/")[2] for file in files]


def test_the_file_of_an_offset_is_found_in_all_queues_or_in_one() -> None:
    manifest = filled()

    assert paths(manifest.at_offset("orders", 7)) == ["a"]
    assert paths(manifest.at_offset("orders", 10)) == ["b"]
    assert paths(manifest.at_offset("orders", 12, queue_id=1)) == []
    assert paths(manifest.at_offset("orders", 7, broker="broker-b")) == []
    assert paths(manifest.at_offset("payments", 7)) == []
    assert data_file("x", stretch(3, 5)).holds(QUEUE, 4)


def test_the_files_of_a_time_are_found() -> None:
    manifest = filled()

    assert paths(manifest.at_time("orders", 150)) == ["a"]
    assert paths(manifest.at_time("orders", 200)) == ["a", "b"]
    assert paths(manifest.at_time("orders", 250, 1_000)) == ["b"]
    assert paths(manifest.at_time("orders", 301)) == []


def test_a_compaction_replaces_files_and_keeps_the_end_offsets() -> None:
    manifest = filled()
    before = [file.path for file in manifest.files.values()]

    manifest.add(Commit(number=3, made_ms=1, added=(data_file("c", stretch(0, 20)),), removed=tuple(before)))

    assert [file.rows for file in manifest.files.values()] == [20]
    assert manifest.ends() == {QUEUE: 20}
    assert manifest.batches == {"q": 1}


def test_a_commit_out_of_sequence_is_refused() -> None:
    with pytest.raises(WrongState, match="lacks commit 3"):
        filled().add(commit(4))
    with pytest.raises(WrongState, match="removes nowhere"):
        filled().add(commit(3, removed=("nowhere",)))
    with pytest.raises(WrongState, match="version 9"):
        filled().add(Commit(number=3, made_ms=1, version=9))


def test_a_recreated_topic_continues_in_its_new_offsets() -> None:
    manifest = filled()
    lost = Lost(stretch(20, 20), Cause.RECREATION)

    manifest.add(commit(3, lost=(lost,), ends=(stretch(0, 10),)))
    manifest.add(commit(4, ends=(stretch(10, 15),)))

    assert manifest.ranges == [stretch(0, 20), stretch(0, 15)]
    assert manifest.current() == [stretch(0, 15)]
    assert manifest.ends() == {QUEUE: 15}
    manifest.add(commit(5, ends=(stretch(15, 20),)))
    manifest.add(commit(6, lost=(lost,), ends=(stretch(0, 3),)))
    assert manifest.ranges == [stretch(0, 20), stretch(0, 20), stretch(0, 3)]
    assert manifest.ends() == {QUEUE: 3}


def test_new_messages_with_the_offsets_of_a_lost_end_are_added() -> None:
    manifest = filled()
    lost = Lost(stretch(14, 20), Cause.TRUNCATION)

    assert missing_ranges([stretch(14, 17)], manifest.current(), [lost]) == [stretch(14, 17)]
    manifest.add(commit(3, lost=(lost,), ends=(stretch(14, 17),)))
    assert (manifest.current(), manifest.ends()) == ([stretch(0, 17)], {QUEUE: 17})
    assert missing_ranges([stretch(17, 22)], manifest.current(), ()) == [stretch(17, 22)]
    manifest.add(commit(4, ends=(stretch(17, 22),)))
    assert manifest.ranges == [stretch(0, 22), stretch(14, 20)]
    assert manifest.current() == [stretch(0, 22)]


def test_ranges_of_any_order_are_joined() -> None:
    manifest = Manifest()

    for number, one in enumerate([(40, 50), (10, 20), (0, 3), (20, 30), (30, 40)], 1):
        manifest.add(commit(number, ends=(stretch(*one),)))

    assert manifest.ranges == [stretch(10, 50), stretch(0, 3)]
    assert manifest.ends() == {QUEUE: 50}
    assert missing_ranges([stretch(0, 60)], manifest.current(), ()) == [stretch(3, 10), stretch(50, 60)]


def test_committed_messages_are_skipped() -> None:
    wanted = [stretch(5, 15), stretch(0, 3, OTHER)]

    both = [stretch(0, 15), stretch(0, 3, OTHER)]

    assert missing_ranges(wanted, [stretch(0, 10)], ()) == [stretch(10, 15), stretch(0, 3, OTHER)]
    assert missing_ranges(wanted, both, ()) == []
    assert missing_ranges(wanted, both, [Lost(stretch(15, 15), Cause.RECREATION)]) == [stretch(5, 15)]
    parts = missing_ranges(wanted, [stretch(7, 9), stretch(11, 12)], ())
    assert in_rounds(parts) == [
        [stretch(5, 7), stretch(0, 3, OTHER)],
        [stretch(9, 11)],
        [stretch(12, 15)],
    ]


def test_missing_messages_are_recorded_as_lost() -> None:
    come = [Span(stretch(3, 6), 3), Span(stretch(8, 9), 1)]

    lost = not_covered([stretch(0, 10), stretch(0, 2, OTHER)], come)

    assert [one.range for one in lost] == [stretch(0, 3), stretch(6, 8), stretch(9, 10), stretch(0, 2, OTHER)]
    assert not_covered([stretch(3, 6)], come) == []
    assert lost[0] == Lost(stretch(0, 3), Cause.RETENTION)
