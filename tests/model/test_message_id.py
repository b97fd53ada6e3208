"""Ids of both kinds: their contents, and that no two are equal."""

import contextlib
import threading
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.errors import ProtocolError
from pocketmq.model.message_id import Host, OffsetId, UniqueId, UniqueIds, month_of, pack_ip

IPS = st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16)
HOSTS = st.builds(Host, IPS, st.integers(0, 65535))
TIMES_MS = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)).map(lambda day: int(day.timestamp() * 1000))
HALF_AN_HOUR_MS = 1_800_000


def local_ms(*date: int) -> int:
    year, month, day = date
    return int(datetime(year, month, day).timestamp() * 1000)


def test_the_offset_id_of_the_reference_message_is_known() -> None:
    place = OffsetId(Host.parse("10.0.0.2:10911"), 1234567)

    assert str(place) == "0A00000200002A9F000000000012D687"
    assert OffsetId.parse("0A00000200002A9F000000000012D687") == place


@given(HOSTS, st.integers(0, 2**63 - 1))
def test_an_offset_id_contains_the_position_of_the_message(host: Host, offset: int) -> None:
    text = str(OffsetId(host, offset))

    assert len(text) == (56 if host.is_v6 else 32)
    assert text == text.upper()
    assert OffsetId.parse(text) == (host, offset)
    assert OffsetId.parse(text.lower()) == (host, offset)


@given(st.binary(min_size=16, max_size=16) | st.binary(min_size=28, max_size=28))
def test_any_bytes_of_the_right_length_are_an_id_that_survives(raw: bytes) -> None:
    text = raw.hex().upper()

    assert str(OffsetId.parse(text)) == text
    assert OffsetId.parse(text).host.packed() == raw[:-8]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0A00000200002A9F",
        "0A00000200002A9F000000000012D6870",
        "0A00000200002A9F000000000012D68G",
        "0A00000200002A9F 00000000012D687",
        " " * 32,
        "0A 00 00 02 00 00 2A 9F 00 00 00",
    ],
)
def test_an_invalid_id_is_refused_with_its_text(text: str) -> None:
    for kind in (OffsetId, UniqueId):
        with pytest.raises(ProtocolError) as caught:
            kind.parse(text)

        assert repr(text) in str(caught.value)


@given(st.text(st.characters(exclude_categories=()), min_size=32, max_size=32) | st.text(max_size=60))
def test_any_text_is_an_id_or_refused(text: str) -> None:
    for kind in (OffsetId, UniqueId):
        try:
            assert len(kind.parse(text)) == len(kind._fields)
        except ProtocolError:
            assert len(text) not in (32, 56) or not text.isalnum() or set(text.upper()) - set("0123456789ABCDEF")


@pytest.mark.parametrize(
    ("text", "shown", "is_v6"),
    [
        ("127.0.0.1:10911", "127.0.0.1:10911", False),
        ("0.0.0.0:0", "0.0.0.0:0", False),
        ("[::1]:65535", "[::1]:65535", True),
        ("::1:9876", "[::1]:9876", True),
    ],
)
def test_an_address_is_read_and_shown(text: str, shown: str, *, is_v6: bool) -> None:
    host = Host.parse(text)

    assert str(host) == shown
    assert host.is_v6 is is_v6


@given(HOSTS)
def test_an_address_survives_being_shown_and_stored(host: Host) -> None:
    assert Host.parse(str(host)) == host
    assert host.packed() == host.ip + bytes([0, 0, host.port >> 8, host.port & 255])
    assert pack_ip(host.ip_text) == host.ip


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "localhost:10911",
        "1.2.3:80",
        "1.2.3.4",
        "1.2.3.4:",
        "1.2.3.4:65536",
        "1.2.3.4:-1",
        "1.2.3.4:x",
        "1.2.3.4\0:80",
        "\ud800:80",
        "1.2.3.4:" + "9" * 5000,
        ":80",
        "[::1]",
    ],
)
def test_an_address_that_is_not_numeric_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        Host.parse(text)


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    with contextlib.suppress(ProtocolError):
        assert Host.parse(text).port <= 65535


@given(IPS, st.integers(0, 2**22), st.integers(-(2**31), 2**31 - 1), TIMES_MS)
def test_a_unique_id_contains_its_creator_and_time(ip: bytes, pid: int, salt: int, now_ms: int) -> None:
    parts = UniqueId.parse(UniqueIds(ip, pid, salt).next(now_ms))

    assert (parts.ip, parts.pid, parts.salt) == (ip, pid & 0xFFFF, salt & 0xFFFFFFFF)
    assert parts.born_ms(now_ms) == now_ms


@given(TIMES_MS, st.integers(0, 27 * 86_400_000))
def test_the_birth_of_an_id_is_found_when_it_is_less_than_a_month_old(born_ms: int, age_ms: int) -> None:
    parts = UniqueId.parse(UniqueIds(b"\x0a\0\0\1", 1, 1).next(born_ms))

    assert parts.born_ms(born_ms + age_ms) == born_ms


@given(TIMES_MS)
def test_a_month_contains_its_time_and_ends_at_the_next(now_ms: int) -> None:
    start, end = month_of(now_ms)

    assert start <= now_ms < end
    assert month_of(end)[0] == end
    assert month_of(end - 1) == month_of(start) == (start, end)
    assert 27 * 86_400_000 < end - start < 32 * 86_400_000


@pytest.mark.parametrize(
    ("date", "start", "end"),
    [
        ((2024, 2, 29), (2024, 2, 1), (2024, 3, 1)),
        ((2023, 12, 31), (2023, 12, 1), (2024, 1, 1)),
        ((2024, 1, 1), (2024, 1, 1), (2024, 2, 1)),
    ],
)
def test_months_are_those_of_the_local_calendar(
    date: tuple[int, int, int], start: tuple[int, int, int], end: tuple[int, int, int]
) -> None:
    assert month_of(local_ms(*date)) == (local_ms(*start), local_ms(*end))


def test_the_counter_restarts_at_the_end_of_the_month() -> None:
    ids = UniqueIds(b"\x0a\0\0\1", 77, 1)
    new_year_ms = local_ms(2024, 1, 1)

    before = UniqueId.parse(ids.next(new_year_ms - 1))
    after = UniqueId.parse(ids.next(new_year_ms))

    assert before.ms_of_month == 31 * 86_400_000 - 1
    assert after.ms_of_month == 0
    assert after.counter == before.counter + 1


@given(st.lists(st.integers(-HALF_AN_HOUR_MS, HALF_AN_HOUR_MS), min_size=1, max_size=200))
def test_ids_are_unique_around_the_end_of_a_month_even_when_the_clock_steps_back(steps_ms: list[int]) -> None:
    ids = UniqueIds(b"\x0a\0\0\1", 77, 1)
    month_end_ms = local_ms(2024, 3, 1)

    given_ids = [ids.next(month_end_ms + step_ms) for step_ms in steps_ms]

    assert len(set(given_ids)) == len(given_ids)


def test_ids_can_be_composed_of_prefix_and_number() -> None:
    now_ms = local_ms(2024, 3, 1)
    ids, same = UniqueIds(b"\x0a\0\0\1", 77, 1), UniqueIds(b"\x0a\0\0\1", 77, 1)

    written = [f"{ids.beginning(now_ms)}{number & 0xFFFF:04X}" for number in ids.numbers(70_000)]

    assert written[:3] == [same.next(now_ms) for _ in range(3)]
    assert written[3:] == same.take(69_997, now_ms)
    assert ids.beginning(now_ms + 1) != ids.beginning(now_ms)


def test_65536_ids_fit_into_one_millisecond() -> None:
    ids = UniqueIds(b"\x0a\0\0\1", 77, 1)

    assert len({ids.next(1_700_000_000_000) for _ in range(65536)}) == 65536


def test_many_ids_at_once_equal_those_created_one_by_one() -> None:
    together, alone = (UniqueIds(b"\x0a\0\0\1", 77, 1) for _ in range(2))
    now_ms = 1_700_000_000_000

    ids = [*together.take(3, now_ms), together.next(now_ms), *together.take(2, now_ms + 1)]

    assert ids == [alone.next(now_ms + (at > 3)) for at in range(6)]
    assert {len(each) for each in ids} == {together.id_chars}
    assert together.take(0, now_ms) == []


def test_threads_never_get_the_same_id() -> None:
    ids = UniqueIds(b"\x0a\0\0\1", 77, 1)
    given_ids: list[str] = []

    def take() -> None:
        given_ids.extend([ids.next(1_700_000_000_000) for _ in range(2000)])

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(set(given_ids)) == 8000


def test_processes_with_equal_address_and_pid_differ_by_a_random_part() -> None:
    one, other = (UniqueIds(b"\x0a\0\0\1", 1, salt).next(1_700_000_000_000) for salt in (1, 2))

    assert one != other
