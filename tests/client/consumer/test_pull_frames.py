"""Pulls from a template equal those of the encoder, signed or not."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as some
from tests.golden import captured, needs_golden

from pocketmq.client.cluster.calls import named
from pocketmq.client.cluster.rpc import STREAM_MARKS, RpcClient
from pocketmq.client.consumer.pulling import pull_writer
from pocketmq.codes import VERSION, RequestCode, Version
from pocketmq.net.pool import Pool
from pocketmq.protocol.api.messages import PullMessage
from pocketmq.protocol.command import Command, decode_command, encode_command
from pocketmq.protocol.frames import split_frames
from pocketmq.protocol.signing import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, Credentials, verify

PULL = RequestCode.PULL_MESSAGE
names = some.sampled_from(["T", "NS%T", "100%d", 'a"b', ',"opaque":0,', "täglich"])
credentials = some.one_of(
    some.none(), some.builds(Credentials, names, names), some.builds(Credentials, names, names, security_token=names)
)
CAPTURED_SECRET = "pocketSecret12"


def links_of(credentials: Credentials | None, *, is_marked: bool = False) -> RpcClient:
    """Those of a client that is never connected."""
    return RpcClient(cast("Pool", None), credentials=credentials, marks=STREAM_MARKS if is_marked else None)


def header(group: str, topic: str, expression: str | None, offset: int, flags: int, committed: int) -> PullMessage:
    return PullMessage(
        consumer_group=group,
        topic=topic,
        queue_id=3,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=flags,
        commit_offset=committed,
        suspend_timeout_millis=15_000,
        sub_version=7,
        subscription=expression,
        expression_type="TAG",
        max_msg_bytes=262_144,
    )


def decoded(frame: bytes) -> Command:
    (one,) = split_frames(frame)
    return decode_command(one)


@given(
    group=names,
    topic=names,
    broker_name=names,
    expression=some.one_of(some.none(), names),
    offset=some.integers(0, 2**63 - 1),
    flags=some.integers(0, 31),
    committed=some.integers(0, 2**63 - 1),
    number=some.integers(-(2**31), 2**31 - 1),
    credentials=credentials,
    is_marked=some.booleans(),
)
def test_a_template_gives_the_same_bytes_as_the_encoder(
    group: str,
    topic: str,
    broker_name: str,
    expression: str | None,
    offset: int,
    flags: int,
    committed: int,
    number: int,
    credentials: Credentials | None,
    is_marked: bool,
) -> None:
    rpc = links_of(credentials, is_marked=is_marked)
    write = pull_writer(rpc, PULL, header(group, topic, expression, 0, 0, 0), broker_name)
    fields = header(group, topic, expression, offset, flags, committed).encode() | named(broker_name)

    frame = write(offset, flags, committed, number)

    assert frame == encode_command(rpc.signed(Command(PULL, fields, opaque=number)))


@pytest.mark.parametrize("token", [None, "of today"])
@pytest.mark.parametrize("version", [Version.V4_9_3, Version.V4_9_4, VERSION])
def test_old_and_new_servers_accept_the_signature_of_each_pull(version: int, token: str | None) -> None:
    rpc = links_of(Credentials("key", "secret", token))
    write = pull_writer(rpc, PULL, header("G", "T", "*", 0, 0, 0), "broker-a")

    pulls = [decoded(write(offset, 2, committed, 7)) for offset, committed in ((0, 0), (40, 0), (40, 32))]

    for pull in pulls:
        ext = pull.ext or {}
        assert verify(ext, b"", "secret", version)
        assert not verify(ext | {"queueOffset": "41"}, b"", "secret", version)
        assert (ext[ACCESS_KEY], ext.get(SECURITY_TOKEN)) == ("key", token)
    assert len({(pull.ext or {})[SIGNATURE] for pull in pulls}) == 3


def test_the_repr_of_a_writer_hides_the_secret() -> None:
    write = pull_writer(links_of(Credentials("key", "of nobody")), PULL, header("G", "T", "*", 0, 0, 0), "broker-a")

    assert "of nobody" not in repr(write)


@needs_golden
def test_a_pull_has_the_same_signature_as_javas_client() -> None:
    versions = set()
    for frame in captured("wire/*/*/acl.jsonl"):
        ext = frame.command.ext or {}
        if frame.command.code != PULL or SIGNATURE not in ext:
            continue
        asked = PullMessage.decode(ext)
        rpc = links_of(Credentials(ext[ACCESS_KEY], CAPTURED_SECRET))
        write = pull_writer(rpc, PULL, asked, ext["bname"])

        ours = decoded(write(asked.queue_offset, asked.sys_flag, asked.commit_offset, frame.command.opaque))

        assert ours.ext == ext, frame.name
        versions.add(frame.command.version)
    assert {version < Version.V5_0_0 for version in versions} == {True, False}
