"""Sessions and their tokens."""

from pocketmq.console.users import Role, Sessions, User
from pocketmq.testing import FakeClock

ADA = User("ada", Role.OPERATOR, "x")


def test_a_session_ends_by_itself() -> None:
    clock = FakeClock()
    sessions = Sessions(clock, session_s=60, max_sessions=10)
    session = sessions.begin(ADA)

    assert sessions.find(session.session_id) == session
    clock.advance_ms(61_000)
    assert sessions.find(session.session_id) is None
    assert len(sessions) == 0


def test_a_session_ends_when_its_user_is_removed() -> None:
    known = {ADA}
    sessions = Sessions(FakeClock(), 60, 10, is_valid=known.__contains__)
    session, nobodys = sessions.begin(ADA), sessions.begin(None)

    assert sessions.find(session.session_id) == session
    known.clear()
    assert sessions.find(session.session_id) is None
    assert sessions.find(nobodys.session_id) == nobodys
    known.add(ADA)
    assert sessions.find(session.session_id) is None, "it stays deleted"


def test_above_the_limit_the_oldest_session_ends() -> None:
    sessions = Sessions(FakeClock(), session_s=60, max_sessions=2)

    first, second, third = (sessions.begin(None) for _ in range(3))

    assert sessions.find(first.session_id) is None
    assert sessions.find(second.session_id) is not None
    assert sessions.find(third.session_id) is not None


def test_a_token_belongs_to_one_session() -> None:
    sessions = Sessions(FakeClock(), session_s=60, max_sessions=10)
    mine, yours = sessions.begin(ADA), sessions.begin(User("tim", Role.VIEWER, "y"))

    assert sessions.is_token(mine, sessions.token(mine))
    assert not sessions.is_token(mine, sessions.token(yours))
    assert not sessions.is_token(mine, "")
    assert not sessions.is_token(mine, "ä")


def test_without_a_cookie_no_session_is_found() -> None:
    sessions = Sessions(FakeClock(), session_s=60, max_sessions=10)

    assert sessions.find(None) is None
    assert sessions.find("guess") is None


def test_a_note_is_shown_once() -> None:
    sessions = Sessions(FakeClock(), session_s=60, max_sessions=10)
    session = sessions.begin(None)

    sessions.set_message(session, "done")

    assert sessions.pop_message(session) == "done"
    assert sessions.pop_message(session) == ""
