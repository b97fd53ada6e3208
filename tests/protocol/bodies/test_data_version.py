"""When two tables are the same, and how a change shows."""

from pocketmq.protocol.bodies.topics import DataVersion

NOW_MS = 1_700_000_000_000


def test_versions_are_equal_if_all_three_numbers_are() -> None:
    version = DataVersion(counter=3, state_version=1, timestamp=NOW_MS)

    assert version == DataVersion(3, 1, NOW_MS)
    assert version != DataVersion(4, 1, NOW_MS)
    assert version != DataVersion(3, 2, NOW_MS)
    assert version != DataVersion(3, 1, NOW_MS + 1)


def test_a_change_increases_the_counter_and_sets_the_given_time() -> None:
    version = DataVersion(counter=3, state_version=7, timestamp=NOW_MS)

    assert version.next_version(NOW_MS + 5) == DataVersion(4, 0, NOW_MS + 5)
    assert version.next_version(NOW_MS + 5, state_version=7) == DataVersion(4, 7, NOW_MS + 5)


def test_a_change_is_visible_within_one_millisecond_and_after_a_clock_step() -> None:
    version = DataVersion(counter=3, timestamp=NOW_MS)

    assert version.next_version(NOW_MS) != version
    assert version.next_version(NOW_MS - 60_000) != version


def test_release_4_has_no_state_version() -> None:
    assert DataVersion.decode(b'{"counter":2,"timestamp":5}') == DataVersion(2, 0, 5)
    assert DataVersion(2, 0, 5).encode() == b'{"counter":2,"stateVersion":0,"timestamp":5}'
