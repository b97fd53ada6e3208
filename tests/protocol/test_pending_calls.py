"""One end of a conversation, without a socket: numbers, answers, deadlines, and two ends talking to each other."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pocketmq.codes import HeaderEncoding, RequestCode, ResponseCode
from pocketmq.errors import (
    ConnectionLost,
    ProtocolError,
    StoreFull,
    TooManyCalls,
    TopicNotFound,
    UsageError,
    WrongState,
    error_for,
)
from pocketmq.protocol.command import ONEWAY, RESPONSE, Command, decode_command
from pocketmq.protocol.frames import join_frame, split_frames
from pocketmq.protocol.pending_calls import PendingCalls, failure_reply

LARGEST = 2**31 - 1
SMALLEST = -(2**31)


def request(code: int = RequestCode.PULL_MESSAGE, body: bytes = b"") -> Command:
    return Command(code, body=body)


def response(number: int, body: bytes = b"") -> Command:
    return Command(ResponseCode.SUCCESS, body=body, flag=RESPONSE, opaque=number)


def the_command(data: bytes) -> Command:
    (frame,) = split_frames(data)
    return decode_command(frame)


def test_calls_are_numbered_from_zero_and_are_plain_requests() -> None:
    connection: PendingCalls[str] = PendingCalls()

    first = the_command(connection.call(request(), 1.0, "first"))
    second = the_command(connection.call(request(), 1.0, "second"))

    assert (first.opaque, second.opaque) == (0, 1)
    assert first.flag == second.flag == 0
    assert connection.in_flight == 2


def test_a_one_way_command_can_be_sent_again_as_a_call() -> None:
    connection: PendingCalls[str] = PendingCalls()
    command = request()
    connection.oneway(command)

    again = the_command(connection.call(command, 1.0, "again"))

    assert again.flag == 0
    assert command.opaque == again.opaque == 1


def test_answers_reach_their_callers_in_any_order() -> None:
    connection: PendingCalls[str] = PendingCalls()
    for name in ("a", "b", "c"):
        connection.call(request(), 1.0, name)

    waiters = [connection.take(response(number)) for number in (2, 0, 1)]

    assert waiters == ["c", "a", "b"]
    assert connection.in_flight == 0


def test_an_unexpected_response_is_counted_and_ignored() -> None:
    connection: PendingCalls[str] = PendingCalls()
    number = connection.begin(1.0, "a")
    connection.take(response(number))

    assert connection.take(response(number)) is None
    assert connection.take(response(99)) is None
    assert connection.unmatched == 2


def test_numbers_wrap_to_negative_and_skip_those_still_in_flight() -> None:
    connection: PendingCalls[str] = PendingCalls(first_number=LARGEST)

    assert connection.begin(1.0, "last positive") == LARGEST
    assert connection.begin(1.0, "first negative") == SMALLEST

    again: PendingCalls[str] = PendingCalls(first_number=0)
    again.begin(1.0, "still open")
    again.begin(1.0, "still open")
    again._next = LARGEST
    numbers = [again.begin(1.0, "new") for _ in range(2)]
    again._next = 0

    assert numbers == [LARGEST, SMALLEST]
    assert again.begin(1.0, "new") == 2


def test_a_one_way_request_skips_used_numbers_and_opens_no_call() -> None:
    connection: PendingCalls[str] = PendingCalls()
    connection.begin(1.0, "open")
    connection._next = 0

    sent = the_command(connection.oneway(request()))

    assert sent.opaque == 1
    assert sent.flag == ONEWAY
    assert connection.in_flight == 1


def test_a_call_above_the_limit_is_refused_and_accepted_after_an_answer() -> None:
    connection: PendingCalls[str] = PendingCalls(max_in_flight=2)
    connection.begin(1.0, "a")
    connection.begin(1.0, "b")

    with pytest.raises(TooManyCalls, match="2 calls are pending"):
        connection.call(request(), 1.0, "c")
    connection.take(response(0))

    assert connection.begin(1.0, "c") == 2


def test_many_calls_opened_at_once_have_consecutive_numbers() -> None:
    connection: PendingCalls[str] = PendingCalls(max_in_flight=5, first_number=7)

    numbers = connection.begin_many(10.0, ["a", "b", "c"])

    assert list(numbers) == [7, 8, 9]
    assert (connection.in_flight, connection.spare) == (3, 2)
    assert connection.take_number(8) == "b"
    assert list(connection.begin_many(11.0, [])) == []
    assert connection.begin(11.0, "d") == 10


def test_calls_above_the_limit_are_refused_together() -> None:
    connection: PendingCalls[str] = PendingCalls(max_in_flight=2)

    with pytest.raises(TooManyCalls, match="0 calls are pending"):
        connection.begin_many(10.0, ["a", "b", "c"])
    assert connection.in_flight == 0
    connection.close(ConnectionLost("gone"))
    with pytest.raises(ConnectionLost, match="gone"):
        connection.begin_many(10.0, ["a"])


def test_numbers_of_many_calls_wrap_and_skip_those_still_in_flight() -> None:
    connection: PendingCalls[str] = PendingCalls(first_number=LARGEST - 1)

    assert list(connection.begin_many(10.0, ["a", "b", "c"])) == [LARGEST - 1, LARGEST, SMALLEST]
    taken: PendingCalls[str] = PendingCalls(first_number=SMALLEST)
    taken.begin_many(10.0, ["a", "b"])
    taken._next = SMALLEST  # as after all other numbers were used
    assert list(taken.begin_many(10.0, ["c", "d"])) == [SMALLEST + 2, SMALLEST + 3]


def test_unanswered_calls_that_were_opened_together_expire_together() -> None:
    connection: PendingCalls[str] = PendingCalls()
    first, second, _ = connection.begin_many(10.0, ["a", "b", "c"])
    connection.begin_many(5.0, ["d"])
    connection.take_number(second)

    assert connection.next_deadline() == 5.0
    assert connection.expire(5.0) == ["d"]
    assert connection.next_deadline() == 10.0
    assert connection.expire(9.9) == []
    assert connection.expire(10.0) == ["a", "c"]
    assert connection.next_deadline() is None
    assert connection.take_number(first) is None


def test_deadlines_of_many_answered_calls_do_not_accumulate() -> None:
    connection: PendingCalls[str] = PendingCalls()

    for at in range(5000):
        for number in connection.begin_many(float(at), ["a", "b"]):
            connection.take_number(number)

    assert len(connection._deadlines) <= 1026


def test_a_call_expires_at_its_deadline_and_not_before() -> None:
    connection: PendingCalls[str] = PendingCalls()
    connection.begin(3.0, "slow")
    connection.begin(1.0, "fast")
    connection.begin(2.0, "middle")

    assert connection.next_deadline() == 1.0
    assert connection.expire(0.999) == []
    assert connection.expire(1.0) == ["fast"]
    assert connection.next_deadline() == 2.0
    assert connection.expire(10.0) == ["middle", "slow"]
    assert connection.next_deadline() is None
    assert connection.in_flight == 0


def test_an_answer_after_the_deadline_is_unmatched() -> None:
    connection: PendingCalls[str] = PendingCalls()
    number = connection.begin(1.0, "a")
    connection.expire(1.0)

    assert connection.take(response(number)) is None
    assert connection.unmatched == 1


def test_answered_and_cancelled_calls_have_no_deadline() -> None:
    connection: PendingCalls[str] = PendingCalls()
    answered = connection.begin(1.0, "answered")
    forgotten = connection.begin(2.0, "forgotten")
    connection.begin(3.0, "open")
    connection.take(response(answered))

    assert connection.forget(forgotten)
    assert not connection.forget(forgotten)
    assert connection.next_deadline() == 3.0
    assert connection.expire(5.0) == ["open"]


def test_a_reused_number_does_not_have_the_old_deadline() -> None:
    connection: PendingCalls[str] = PendingCalls()
    connection.begin(1.0, "old")
    connection.forget(0)
    connection._next = 0
    connection.begin(9.0, "new")

    assert connection.next_deadline() == 9.0
    assert connection.expire(2.0) == []
    assert connection.expire(9.0) == ["new"]


def test_deadlines_of_answered_calls_do_not_accumulate() -> None:
    connection: PendingCalls[int] = PendingCalls()

    for call in range(20_000):
        number = connection.begin(call + 1000.0, call)
        connection.take(response(number))

    assert len(connection._deadlines) <= 1025


def test_closing_returns_every_waiter_once_and_refuses_later_calls() -> None:
    connection: PendingCalls[str] = PendingCalls()
    connection.begin(1.0, "a")
    connection.begin(2.0, "b")

    assert connection.close(ConnectionLost("10.0.0.1:10911: cut")) == ["a", "b"]
    assert connection.close(ConnectionLost("again")) == []
    assert connection.next_deadline() is None
    with pytest.raises(ConnectionLost, match=r"10\.0\.0\.1:10911: cut"):
        connection.call(request(), 1.0, "c")
    with pytest.raises(ConnectionLost, match="cut"):
        connection.oneway(request())


def test_an_answer_has_number_encoding_and_response_bit_of_its_request() -> None:
    connection: PendingCalls[str] = PendingCalls()
    asked = Command(RequestCode.GET_MAX_OFFSET, opaque=-7, encoding=HeaderEncoding.ROCKETMQ)

    answer = the_command(connection.reply(asked, Command(ResponseCode.SUCCESS, {"offset": "5"})))

    assert (answer.opaque, answer.flag, answer.encoding) == (-7, RESPONSE, HeaderEncoding.ROCKETMQ)
    assert answer.ext == {"offset": "5"}


@pytest.mark.parametrize("flag", [ONEWAY, RESPONSE, ONEWAY | RESPONSE])
def test_one_way_requests_and_responses_cannot_be_answered(flag: int) -> None:
    connection: PendingCalls[str] = PendingCalls()

    with pytest.raises(WrongState, match="must not get a response"):
        connection.reply(Command(RequestCode.HEART_BEAT, flag=flag), Command(ResponseCode.SUCCESS))


def test_a_command_larger_than_a_frame_is_refused_before_it_breaks_the_connection() -> None:
    connection: PendingCalls[str] = PendingCalls(frame_bytes=1000)

    with pytest.raises(UsageError, match="the limit of a frame is 1000"):
        connection.call(request(body=bytes(1000)), 1.0, "a")

    assert connection.in_flight == 0
    assert connection.next_deadline() is None


def test_two_ends_may_use_the_same_numbers_at_the_same_time() -> None:
    client: PendingCalls[str] = PendingCalls()
    server: PendingCalls[str] = PendingCalls()
    pull = client.call(request(RequestCode.PULL_MESSAGE), 1.0, "pull")
    notify = server.call(request(RequestCode.CHECK_TRANSACTION_STATE), 1.0, "check")

    asked_of_server, asked_of_client = the_command(pull), the_command(notify)
    to_client = the_command(server.reply(asked_of_server, Command(ResponseCode.PULL_NOT_FOUND)))
    to_server = the_command(client.reply(asked_of_client, Command(ResponseCode.SUCCESS)))

    assert asked_of_server.opaque == asked_of_client.opaque == 0
    assert to_client.is_response
    assert to_server.is_response
    assert (client.take(to_client), to_client.code) == ("pull", ResponseCode.PULL_NOT_FOUND)
    assert (server.take(to_server), to_server.code) == ("check", ResponseCode.SUCCESS)


def test_every_error_becomes_an_answer_with_its_code_and_text() -> None:
    asked = Command(RequestCode.SEND_MESSAGE, opaque=3)

    told = [
        failure_reply(asked, error)
        for error in (TopicNotFound("no T"), error_for(31337, "odd"), StoreFull("no space"), KeyError("x"))
    ]

    assert [(answer.code, answer.remark) for answer in told] == [
        (ResponseCode.TOPIC_NOT_EXIST, "no T"),
        (31337, "odd"),
        (ResponseCode.SERVICE_NOT_AVAILABLE, "no space"),
        (ResponseCode.SYSTEM_ERROR, "KeyError: 'x'"),
    ]
    assert all(answer.is_response and answer.opaque == 3 for answer in told)


@given(st.lists(st.tuples(st.sampled_from(["call", "answer", "forget", "expire"]), st.integers(0, 20)), max_size=60))
def test_every_call_ends_exactly_once(steps: list[tuple[str, int]]) -> None:
    connection: PendingCalls[int] = PendingCalls(max_in_flight=10)
    opened: list[int] = []
    ended: list[int] = []
    for at, (step, which) in enumerate(steps):
        match step:
            case "call" if connection.in_flight < 10:
                opened.append(connection.begin(at + which, len(opened)))
            case "answer":
                waiter = connection.take(response(which))
                ended += [] if waiter is None else [waiter]
            case "forget":
                ended += [which] if connection.forget(which) else []
            case "expire":
                ended += connection.expire(at)

    ended += connection.close(ConnectionLost("over"))

    assert sorted(ended) == opened


@given(st.binary(max_size=200))
def test_arbitrary_headers_raise_only_a_protocol_error(header: bytes) -> None:
    for encoding in HeaderEncoding:
        try:
            the_command(join_frame(encoding, header))
        except ProtocolError:
            continue
