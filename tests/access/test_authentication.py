"""Authentication of requests: the account, the signature, and the permissions."""

from ipaddress import ip_network
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.access.kit import (
    ADMIN,
    ALL_ACTIONS,
    FILE,
    STRANGER,
    TOPIC,
    USER,
    account,
    authentication,
    put_file,
    request_of,
    signed,
)
from tests.golden import captured, needs_golden
from tests.net.talk import BRISK, SERVER, Recorder

from pocketmq.access.accounts import Action
from pocketmq.access.authentication import SHOWN_CHARS, Authentication, Cause, authentication_by
from pocketmq.access.settings import AuthenticationSettings
from pocketmq.broker.access import ACCESS
from pocketmq.codes import HeaderEncoding, RequestCode, Version
from pocketmq.errors import ConnectionLost, InvalidSetting, NoPermission
from pocketmq.net.peer import Peer
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.signing import Credentials, signed_fields
from pocketmq.testing import FakeClock, FaultyFiles, MemoryNetwork, run

SEND = RequestCode.SEND_MESSAGE_V2
SENDER = account(topics={TOPIC: [Action.PUB]})


def refusal(check: Authentication, command: Command, peer: Peer | None = None) -> str:
    with pytest.raises(NoPermission) as error:
        check.check(peer or Peer(), command)
    assert error.value.response_code == 16
    return error.value.remark or ""


def over_the_wire(command: Command) -> Command:
    """As the other side gets it."""
    [frame] = split_frames(encode_command(command))
    return decode_command(frame)


both_encodings = pytest.mark.parametrize("encoding", list(HeaderEncoding), ids=lambda encoding: encoding.name)


@both_encodings
def test_a_request_signed_by_an_account_with_permission_is_accepted(encoding: HeaderEncoding) -> None:
    check = authentication(ACCESS, SENDER, account(ADMIN, is_admin=True))
    request = request_of(SEND, encoding)
    request.body = b"body"

    check.check(Peer(), over_the_wire(signed(request)))
    check.check(Peer(), over_the_wire(signed(request, ADMIN)))

    assert sum(check.refusals.counts.values()) == 0


@both_encodings
def test_refusals_have_the_words_of_apache(encoding: HeaderEncoding) -> None:
    check = authentication(ACCESS, account(topics={"Other": ALL_ACTIONS}))
    request = request_of(SEND, encoding)
    forged = Credentials(USER.access_key, "not the secret")

    assert refusal(check, over_the_wire(request)) == "username cannot be null."
    assert refusal(check, over_the_wire(signed(request, STRANGER))) == "User:stranger is not found."
    assert refusal(check, over_the_wire(signed(request, forged))) == "check signature failed."
    assert refusal(check, over_the_wire(signed(request))) == (
        "User:user has no permission to access Topic:T from , no matched policies."
    )
    assert check.refusals.counts == {Cause.UNSIGNED: 1, Cause.UNKNOWN: 1, Cause.SIGNATURE: 1, Cause.RIGHT: 1}


def changed_requests() -> list[Command]:
    request = signed(replace(request_of(SEND), body=b"body"))
    ext = request.ext or {}
    fields = [replace(request, ext={**ext, name: ext[name] + "x"}) for name in ext if name != "AccessKey"]
    gone = [
        replace(request, ext={name: text for name, text in ext.items() if name != missing}) for missing in ("a", "b")
    ]
    return [
        *fields,
        *gone,
        replace(request, ext={**ext, "more": "x"}),
        replace(request, body=b"bodY"),
        replace(request, body=b""),
        replace(request, ext={**ext, "Signature": ""}),
        replace(request, ext={**ext, "Signature": ext["Signature"].lower()}),
        replace(request, ext={**ext, "Signature": "é" * 28}),
        replace(request, ext={name: text for name, text in ext.items() if name != "Signature"}),
    ]


@pytest.mark.parametrize("request_", changed_requests())
def test_a_request_that_was_changed_in_transit_is_refused(request_: Command) -> None:
    check = authentication(ACCESS, account(is_admin=True))

    assert refusal(check, over_the_wire(request_)) == "check signature failed."


def test_a_request_may_be_repeated_because_rocketmq_signs_no_time() -> None:
    check = authentication(ACCESS, SENDER)
    request = over_the_wire(signed(request_of(SEND)))

    for _ in range(3):
        check.check(Peer(), request)


def test_a_field_that_old_clients_add_after_signing_is_not_verified() -> None:
    check = authentication(ACCESS, account(topics={TOPIC: [Action.GET]}))
    query = request_of(RequestCode.QUERY_MESSAGE)
    del (query.ext or {})["_UNIQUE_KEY_QUERY"]
    added = replace(signed(query), version=int(Version.V4_9_3))
    added.ext = {**(added.ext or {}), "_UNIQUE_KEY_QUERY": "true"}

    check.check(Peer(), added)

    assert refusal(check, replace(added, version=int(Version.V4_9_4))) == "check signature failed."


def test_a_security_token_is_signed_and_otherwise_ignored() -> None:
    check = authentication(ACCESS, SENDER)
    request = request_of(SEND)
    request.ext = signed_fields(request.ext, b"", Credentials(USER.access_key, USER.secret, "token"))

    check.check(Peer(), request)
    request.ext["SecurityToken"] = "other"

    assert refusal(check, request) == "check signature failed."


@needs_golden
def test_requests_of_java_clients_are_accepted_only_with_a_correct_signature() -> None:
    java = Credentials("pocketAccess", "pocketSecret12")
    check = authentication(ACCESS, account(java, is_admin=True), max_failures=10**6)
    frames = chain(captured("wire/*/*/acl.jsonl"), captured("wire/*/acl/*registration.jsonl"))
    requests = [frame.command for frame in frames if frame.forward and not frame.command.is_response]
    passed = 0

    for request in requests:
        ext = request.ext or {}
        if "AccessKey" not in ext:
            assert refusal(check, request) == "username cannot be null."
        elif "SecurityToken" in ext:
            assert refusal(check, request) == "check signature failed."
        else:
            check.check(Peer(), request)
            passed += 1

    assert passed > 100
    assert check.refusals.counts[Cause.SIGNATURE] > 20
    assert {request.encoding for request in requests} == set(HeaderEncoding)
    assert {int(Version.V4_9_7), int(Version.V5_3_3)} <= {request.version for request in requests}


@settings(max_examples=200, deadline=None)
@given(
    ext=st.none()
    | st.dictionaries(st.text(max_size=9) | st.sampled_from(["AccessKey", "Signature"]), st.text(max_size=30)),
    body=st.binary(max_size=50),
    code=st.sampled_from([*map(int, ACCESS), 0, -1, 9999]),
)
def test_unsigned_requests_are_refused(ext: dict[str, str] | None, body: bytes, code: int) -> None:
    check = authentication(ACCESS, account(is_admin=True), max_failures=10**6)

    refusal(check, Command(code, ext, body))
    refusal(check, Command(code, {**(ext or {}), "AccessKey": USER.access_key}, body))


async def connected(network: MemoryNetwork, host: str) -> tuple[Peer, Recorder]:
    """A server's end of a connection from there, and the client's."""
    peers: list[Peer] = []

    def accept() -> object:
        peers.append(Peer())
        return peers[-1].connection

    await network.listen(accept, SERVER)  # type: ignore[arg-type]
    client = Recorder()
    await network.at(host).connect(lambda: client.connection, SERVER)
    return peers[0], client


def test_an_account_is_refused_outside_its_source_addresses() -> None:
    async def main() -> None:
        peer, _ = await connected(MemoryNetwork(weather=BRISK), "10.1.0.7")
        at_home = account(is_admin=True, sources=(ip_network("10.1.0.0/24"),))
        elsewhere = account(is_admin=True, sources=(ip_network("10.2.0.0/24"),))

        authentication(ACCESS, at_home).check(peer, signed(request_of(SEND)))
        why = refusal(authentication(ACCESS, elsewhere), signed(request_of(SEND)), peer)

        assert why == "User:user may not come from 10.1.0.7."

    run(main())


def test_after_too_many_failures_a_connection_is_closed_without_checking_its_other_requests() -> None:
    async def main() -> None:
        peer, client = await connected(MemoryNetwork(weather=BRISK), "10.1.0.7")
        check = authentication(ACCESS, SENDER, max_failures=3)
        forged = signed(request_of(SEND), Credentials(USER.access_key, "not the secret"))

        for _ in range(3):
            refusal(check, forged, peer)
        was_open = peer.is_open
        refusal(check, forged, peer)
        with pytest.raises(ConnectionLost):
            check.check(peer, signed(request_of(SEND)))

        assert (was_open, peer.is_open) == (True, False)
        await client.connection.wait_lost()
        assert [decode_command(frame).remark for turn in client.turns for frame in turn] == ["check signature failed."]
        assert check.refusals.counts[Cause.SIGNATURE] == 4

    run(main())


def test_unknown_access_keys_are_shortened_and_cannot_forge_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    check = authentication(ACCESS, SENDER)
    name = "x\n2026 ERROR all is lost\x1b[31m" + "y" * 1000

    why = refusal(check, Command(SEND, {"AccessKey": name, "Signature": "s" * 28}))

    assert why == f"User:{name[:SHOWN_CHARS]} is not found."
    assert "\n" not in caplog.text.rstrip("\n")
    assert "\x1b" not in caplog.text
    assert len(caplog.text) < 500


def test_secrets_are_not_logged_or_returned(caplog: pytest.LogCaptureFixture) -> None:
    check = authentication(ACCESS, account(topics={"Other": ALL_ACTIONS}))
    wrong = Credentials(USER.access_key, "not the secret")

    told = [refusal(check, signed(request_of(SEND), who)) for who in (USER, wrong, STRANGER)]
    told += [caplog.text, repr(check), str(vars(check)), str(check.refusals.runtime_info())]

    assert not any(secret in text for secret in (USER.secret, wrong.secret, STRANGER.secret) for text in told)


def test_a_heartbeat_records_that_its_client_may_send() -> None:
    check = authentication(ACCESS, account(topics={TOPIC: [Action.PUB, Action.SUB]}, groups={"G": [Action.SUB]}))
    peer = Peer()
    heartbeat = signed(request_of(RequestCode.HEART_BEAT))

    before = check.may_send_to(peer, TOPIC)
    check.check(peer, heartbeat)

    assert not before
    assert check.may_send_to(peer, TOPIC)
    assert not check.may_send_to(peer, "Other")
    assert not check.may_send_to(Peer(), TOPIC)


def test_without_a_file_no_request_needs_an_account() -> None:
    assert authentication_by(None, FaultyFiles(), ACCESS, FakeClock(), AuthenticationSettings()) is None


def test_the_file_is_read_once_and_its_mistakes_are_reported_at_once() -> None:
    disk = FaultyFiles()
    put_file(disk)

    check = authentication_by(FILE, disk, ACCESS, FakeClock(), AuthenticationSettings())
    disk.unlink(FILE)

    assert check is not None
    check.check(Peer(), signed(request_of(SEND)))
    with pytest.raises(InvalidSetting, match="cannot be read"):
        authentication_by(FILE, disk, ACCESS, FakeClock(), AuthenticationSettings())
