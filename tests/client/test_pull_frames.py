"""Pulls from a template are the pulls that the long way makes."""

from hypothesis import given
from hypothesis import strategies as some

from pocketmq.client.calls.asking import named
from pocketmq.client.pull_frames import pull_frame, pull_template
from pocketmq.codes import RequestCode
from pocketmq.protocol.api.pulling import PullMessage
from pocketmq.protocol.command import Command, encode_command
from pocketmq.protocol.fields import write_fields

PULL = RequestCode.PULL_MESSAGE
names = some.sampled_from(["T", "NS%T", "100%d", 'a"b', ',"opaque":0,', "täglich"])


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


@given(
    group=names,
    topic=names,
    broker_name=names,
    expression=some.one_of(some.none(), names),
    offset=some.integers(0, 2**63 - 1),
    flags=some.integers(0, 31),
    committed=some.integers(0, 2**63 - 1),
    number=some.integers(-(2**31), 2**31 - 1),
)
def test_a_template_gives_what_the_long_way_gives(
    group: str,
    topic: str,
    broker_name: str,
    expression: str | None,
    offset: int,
    flags: int,
    committed: int,
    number: int,
) -> None:
    template = pull_template(PULL, header(group, topic, expression, 0, 0, 0), broker_name)
    fields = write_fields(header(group, topic, expression, offset, flags, committed)) | named(broker_name)

    frame = pull_frame(template, offset, flags, committed, number)

    assert frame == encode_command(Command(PULL, fields, opaque=number))
