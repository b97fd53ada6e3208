"""The benchmark of pops against a real broker, in small."""

from pathlib import Path

from bench.broker.calls import Line
from bench.broker.pop_members import Load, Members, Rate
from bench.broker.pops import COUNT, TOPIC, Member, _row, broker_name, fill
from bench.broker.servers import Wishes, pocketmq

from pocketmq.codes import RequestCode, ResponseCode


def test_members_acknowledge_every_message_once(tmp_path: Path) -> None:
    with pocketmq(tmp_path / "ours", Wishes()) as target, Line(target.port) as line:
        fill(line, 20 * COUNT)
        for batch in (1, COUNT):
            load = Load(TOPIC, f"of_{batch}", broker_name(line), 3, batch)
            with Members(target, load) as members:
                rate = members.run(20 * COUNT, 30)
            assert rate.per_s > 0
            ext = {"consumerGroup": load.group, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1", "bornTime": "0"}
            ext |= {"invisibleTime": "60000", "pollTime": "0", "initMode": "0"}
            assert line.answer(RequestCode.POP_MESSAGE, ext).code == ResponseCode.POLLING_TIMEOUT
        member = Member(line)
        for number in range(2):
            for round_of in (member.pull_and_commit, member.pop_and_batch_ack, member.pop_and_acks):
                round_of(number)


def test_a_row_compares_both_brokers_with_the_goals() -> None:
    row = _row("8 members, pops of 1", [Rate(9_000, 10), Rate(3_000, 31)])

    assert row[1:7] == ["9,000", "3,000", "3.00", "10.00", "31.00", "0.32"]
    assert row[7] == "≥ 3 times: met, CPU ≤ 1/3: met"
    assert "missed" in _row("", [Rate(1, 1), Rate(1, 1)])[7]
