"""Both twins lease and acknowledge the same: for any acks, and any names, they store and answer the same bytes."""

import asyncio
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.broker.pop.pops import Leased, batch_of, change, leased, popping
from tests.broker.running import Client, RunningBroker, request, running, settled
from tests.compiled.requests import damaged, heads, numbers
from tests.compiled.test_memory import grown_bytes
from tests.compiled.test_same_turns import EXAMPLES, kept, without_chance
from tests.twins import BOTH, compiled_or_skip, using

from pocketmq import compiled
from pocketmq.broker.pop.acks import read_acks
from pocketmq.broker.pop.records import LeaseRecords
from pocketmq.codes import RequestCode
from pocketmq.protocol.api.messages import AckMessage, PopReply
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.frames import Frame, split_frames
from pocketmq.protocol.hot_headers import ACKED, POP_PARTS, pop_reply
from pocketmq.protocol.record import decode_record, encode_record
from pocketmq.store.queues.consume_queue import ENTRY
from pocketmq.store.settings import FlushMode
from pocketmq.testing import run

ACK = int(RequestCode.ACK_MESSAGE)
HANDLE = "0 1700000000000 60000 3 0 broker-a 0"
PLAN: compiled.LeasePlan = "broker-a", "rmq_sys_REVIVE_LOG_C", b"\x01T", -626843481, bytes(8)
NUMBERS = 0, 0, 1_700_000_000_000, 60_000, 3, 1_700_000_060_000, 1_700_000_059_000
POSITION = 1_700_000_000_000, 1_700_000_000_001, 7, 1_000, 1 << 20


@pytest.fixture(scope="module")
def turn() -> compiled.Twin:
    return compiled_or_skip()


@st.composite
def ack_fields(draw: st.DrawFn) -> dict[str, object]:
    """Ext fields of an ack; now and then one is strange, missing, or one too many."""
    handle = draw(st.sampled_from([HANDLE, HANDLE, HANDLE.replace(" 3 ", " 4 "), "0 1 2 999 0 b 0", "", "forged"]))
    last = draw(st.sampled_from(["0", "1", "07", "²", "-1", "x", ""]))
    fields: dict[str, object] = {
        "consumerGroup": draw(st.sampled_from(["G", "G", "H", "é", 'a"b'])),
        "topic": draw(st.sampled_from(["T", "T", "%RETRY%G_T", "U", "\n"])),
        "queueId": draw(st.sampled_from(["0", "0", "1", "-1", "2147483648"])),
        "extraInfo": f"{handle} {last}" if draw(st.booleans()) else f"{handle} 0",
        "offset": draw(st.sampled_from(["0", "1", "2", "31"])),
    }
    if draw(st.integers(0, 5)) == 0:
        fields[draw(st.sampled_from([*fields, "bname", "liteTopic"]))] = draw(st.one_of(numbers, st.none(), st.just(5)))
    if draw(st.integers(0, 9)) == 0:
        del fields[draw(st.sampled_from(sorted(fields)))]
    return fields


@st.composite
def ack_frames(draw: st.DrawFn) -> list[Frame]:
    found: list[Frame] = []
    for _ in range(draw(st.integers(0, 8))):
        header = draw(heads(draw(st.sampled_from([ACK, ACK, ACK, ACK, 200050])), draw(ack_fields())))
        if draw(st.integers(0, 9)) == 0:
            header = draw(damaged(header))
        found.append((draw(st.sampled_from([0, 0, 0, 0, 1])), header, b""))
    return found


def plain_acks(count: int, leases: int = 1) -> list[Frame]:
    commands = [
        Command(
            ACK, AckMessage("G", "T", at % leases, f"{HANDLE} {at}", at).encode(), opaque=at, flag=2 * (at % 7 == 6)
        )
        for at in range(count)
    ]
    return split_frames(b"".join(map(encode_command, commands)))


@given(frames=ack_frames(), at=st.integers(0, 3), most=st.integers(0, 9))
def test_acks_are_read_as_in_python(turn: compiled.Twin, frames: list[Frame], at: int, most: int) -> None:
    """The twin may leave an unusual one to Python, which then reads on from there."""
    found = turn.read_acks(frames, at, most, ACKED.parts)

    assert found is None or found == read_acks(frames, at, found[0], ACKED.parts)


@pytest.mark.parametrize(("count", "leases"), [(1, 1), (32, 1), (200, 3), (64, 64)])
def test_usual_acks_are_read_by_one_call(turn: compiled.Twin, count: int, leases: int) -> None:
    frames = plain_acks(count, leases)

    found = turn.read_acks(frames, 0, 300, ACKED.parts)

    assert found is not None
    assert found[0] == count
    assert found == read_acks(frames, 0, 300, ACKED.parts)
    assert len(split_frames(found[2])) == count - count // 7


def test_acks_of_more_leases_than_it_can_hold_are_read_in_parts(turn: compiled.Twin) -> None:
    frames = plain_acks(70, 70)

    found = turn.read_acks(frames, 0, 70, ACKED.parts)

    assert found == read_acks(frames, 0, 64, ACKED.parts)


@pytest.mark.parametrize("name", ["é", 'a"b', "a\\b", "a\x01b", "a\nb", "\ud800", "a\x7f"])
def test_unusual_names_are_left_to_python(turn: compiled.Twin, name: str) -> None:
    assert turn.lay_out_lease(True, name, "T", [0], NUMBERS, POSITION, PLAN) is None
    assert turn.lay_out_lease(True, "G", name, [0], NUMBERS, POSITION, PLAN) is None


def test_a_record_that_does_not_fit_is_left_to_python(turn: compiled.Twin) -> None:
    made = turn.lay_out_lease(False, "G", "T", range(32), NUMBERS, POSITION, PLAN)
    assert made is not None
    record, _ = made
    assert decode_record(record).size == len(record)

    fits = *POSITION[:4], POSITION[3] + len(record)
    assert turn.lay_out_lease(False, "G", "T", range(32), NUMBERS, fits, PLAN) == made
    assert turn.lay_out_lease(False, "G", "T", range(32), NUMBERS, (*fits[:4], fits[4] - 1), PLAN) is None
    assert turn.lay_out_lease(True, "G", "T", range(20_000), NUMBERS, POSITION, PLAN) is None, "properties are too long"
    assert turn.lay_out_lease(False, "G", "T", [-1], NUMBERS, POSITION, PLAN) is None, "before the start"


def test_leases_leak_no_memory(turn: compiled.Twin) -> None:
    frames, broken = plain_acks(40, 5), [*plain_acks(3), (0, b"{", b"")]

    def work() -> None:
        turn.read_acks(frames, 0, 64, ACKED.parts)
        turn.read_acks(broken, 0, 64, ACKED.parts)
        turn.read_acks(broken, 3, 64, ACKED.parts)
        turn.lay_out_lease(False, "G", "T", range(32), NUMBERS, POSITION, PLAN)
        turn.lay_out_lease(True, "G", "T", [1, 2], NUMBERS, POSITION, PLAN)
        turn.lay_out_lease(True, "é", "T", [1, 2], NUMBERS, POSITION, PLAN)
        with pytest.raises(TypeError):
            turn.lay_out_lease(True, "G", "T", [1, None], NUMBERS, POSITION, PLAN)  # type: ignore[list-item]

    assert grown_bytes(work) < 16_384


RECORDS = b"".join(
    encode_record(b"T", 0, number, 100 * number, b"b" * 8, b"", 0, 0, 1, bytes(8), 2, bytes(8)) for number in range(3)
)
SIZE = len(RECORDS) // 3
ENTRIES = b"".join(ENTRY.pack(SIZE * number, SIZE, 0) for number in range(3))
BOUNDS = compiled.ReadBounds(0, 3 * SIZE, 0, 32, 8, 1 << 20, 1 << 16, 3, 2)


def lease_two(turn: compiled.Twin, group: str = "G", entries: bytes = ENTRIES) -> compiled.LeasedMessages | None:
    def map_at(offset: int) -> tuple[memoryview, int]:
        return memoryview(RECORDS), 0

    answer = 5, 0, 7, 3
    return turn.lease_messages(group, "T", entries, BOUNDS, map_at, NUMBERS, POSITION, PLAN, answer, POP_PARTS)


def test_messages_of_one_queue_are_leased_and_answered_by_one_call(turn: compiled.Twin) -> None:
    found = lease_two(turn)
    assert found is not None
    count, size, record, entry, answer, rest = found
    reply = PopReply(NUMBERS[2], NUMBERS[3], NUMBERS[4], 8, "0 0 0", "0 0 0,1")

    assert (count, size, rest) == (2, 2 * SIZE, 8)
    assert (record, entry) == turn.lay_out_lease(False, "G", "T", (0, 1), NUMBERS, POSITION, PLAN)
    assert answer == pop_reply(5, reply, 2 * SIZE) + RECORDS[: 2 * SIZE]


def test_unusual_pops_are_left_to_python(turn: compiled.Twin) -> None:
    hole = ENTRY.pack(0, 2**31 - 1, 0)
    assert lease_two(turn, "é") is None
    assert lease_two(turn, entries=b"") is None
    assert lease_two(turn, entries=hole + ENTRIES) is None


def test_leases_of_messages_leak_no_memory(turn: compiled.Twin) -> None:
    def work() -> None:
        lease_two(turn)
        lease_two(turn, "é")
        lease_two(turn, entries=b"")
        with pytest.raises(TypeError):
            turn.lease_messages("G", "T", ENTRIES, BOUNDS, None, NUMBERS, POSITION, PLAN, (5, 0, 7, 3), POP_PARTS)  # type: ignore[arg-type]

    assert grown_bytes(work) < 16_384


# complete brokers


def test_a_usual_pop_is_leased_by_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    stage_messages = LeaseRecords.stage_messages

    def noted(*args: Any) -> Any:
        found = stage_messages(*args)
        made.append(found is not None)
        return found

    monkeypatch.setattr(LeaseRecords, "stage_messages", noted)

    async def talk() -> None:
        async with running() as broker:
            broker.make_topic("T", 1)
            client = await broker.connect()
            for number in range(6):
                await client.sent(b"%d" % number)
            for most in (2, 32):
                await client.ask(RequestCode.POP_MESSAGE, popping(most=most))

    compiled_or_skip()
    with using("compiled"):
        run(talk())

    assert made == [True, True]


async def answers_of(client: Client, broker: RunningBroker, *commands: Command) -> list[Command]:
    return [await answer for answer in broker.serve_now(client, *commands)] if commands else []


def acks_of(leases: list[Leased], group: str, chance: Random) -> list[Command]:
    """Acks in any order; some have a mistake or come twice."""
    found: list[Command] = []
    for one in chance.sample(leases, len(leases)):
        header = AckMessage(group, one.topic, one.handle.queue_id, one.handle.text(), one.handle.offset)
        match chance.randrange(12):
            case 0:
                header.offset += 900
            case 1:
                header.extra_info = chance.choice(["forged", "", "1 2 3 4 5 b 0 0", HANDLE])
            case 2:
                header.topic, header.queue_id = chance.choice([("Gone", 0), ("T", 9)])
            case 3:
                header.consumer_group = "Other"
            case 4:
                found.append(request(ACK, header))
        found.append(request(ACK, header))
    return found


async def conversation(seed: int, group: str, **store: Any) -> dict[str, object]:
    chance, heard = Random(seed), list[object]()
    async with running(store=store) as broker:
        without_chance(broker)
        broker.parts.chance.seed(seed)
        broker.make_topic("T", 2)
        client = await broker.connect()
        for number in range(40):
            await client.sent(b"%d" % number, queue_id=number % 2)
        for _ in range(8):
            fields: dict[str, Any] = {
                "most": chance.choice([1, 5, 32, 32, 0, -3]),
                "invisible_ms": chance.choice([0, 900, 5_000, 60_000]),
            }
            (popped,) = await answers_of(
                client, broker, request(RequestCode.POP_MESSAGE, popping(group=group, **fields))
            )
            leases = leased(popped, group=group)
            heard.append((popped.code, popped.ext, popped.body))
            match chance.randrange(4):
                case 0:
                    commands = [request(RequestCode.BATCH_ACK_MESSAGE, body=batch_of(leases, group).encode())]
                case 1 if leases:
                    await change(client, leases[0], 4_000, group)
                    commands = acks_of(leases[1:], group, chance)
                case _:
                    commands = acks_of(leases, group, chance)
            heard += [(one.code, one.remark, one.ext) for one in await answers_of(client, broker, *commands)]
            await asyncio.sleep(chance.choice([0, 0.3, 2.2]))
        await settled()
        return {"heard": heard, "stale": broker.parts.acks.stale, **kept(broker)}


@pytest.mark.parametrize("store", [{}, {"flush": FlushMode.SYNC}, {"log_file_bytes": 16 * 1024, "prepared_files": 20}])
@settings(max_examples=EXAMPLES // 2, suppress_health_check=[HealthCheck.too_slow])
@given(seed=st.integers(0, 9_999), group=st.sampled_from(["G", "G", "Gé", "a-b_c|%"]))
def test_both_store_the_same_records_of_leases(store: dict[str, Any], seed: int, group: str) -> None:
    compiled_or_skip()
    heard = list[dict[str, object]]()
    for name in BOTH:
        with using(name):
            heard.append(run(conversation(seed, group, **store)))

    assert heard[0] == heard[1]
