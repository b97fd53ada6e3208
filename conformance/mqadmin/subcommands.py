"""Every captured mqadmin command against our servers: the same form, the same exit code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from conformance import apache
from conformance.clients.conversations import SETTINGS
from conformance.mqadmin.commands import BROKER, captured, first_queue
from conformance.mqadmin.stay import Stay
from conformance.printed import Purpose, flaws_of, judge
from conformance.programs import WORK, OurServer, mqadmin
from conformance.report import Scenario, Trial

STARTS: Final = 12
"""The producer begins with a queue of its choice; it is started again until that is the one of the recording."""
FILES: Final = {
    "topics.json": '[{"topicName":"AdminList1","readQueueNums":2,"writeQueueNums":2,"perm":6},'
    '{"topicName":"AdminList2","readQueueNums":1,"writeQueueNums":1,"perm":6}]',
    "groups.json": '[{"groupName":"AdminListGroup1"},{"groupName":"AdminListGroup2","retryMaxTimes":3}]',
}
"""The files that commands read."""
ONCE: Final = ("queryCq",)
"""Commands that print a row for each message of a queue; one was sent again, to a queue of the client's choice."""

_NEW_TOPICS: Final = "rmq_sys_|RMQ_SYS_TRANS_OP_HALF_TOPIC"
PURPOSES: Final = (
    Purpose(
        "accounts are in a file: PocketMQ does not support requests that manage users and rules",
        "(User|Acl|AclConfig)( |$)",
        "CODE: [13] |RemotingTimeout",
    ),
    Purpose("PocketMQ does not list settings that it does not have", "get(Broker|Namesrv)Config", "."),
    Purpose("PocketMQ's brokers have no epochs, because there are no elections", "getBrokerEpoch", "CODE: [13] "),
    Purpose("PocketMQ does not throttle reads of old messages", "ColdData", "."),
    Purpose("PocketMQ has no slaves whose progress could be set", "resetMasterFlushOffset", "."),
    Purpose("the operating system decides how far the log is read ahead", "setCommitLogReadAheadMode", "."),
    Purpose("PocketMQ does not map topics to queues of several brokers", "StaticTopic|AdminStatic", "."),
    Purpose(
        "PocketMQ adds the waiting time of heartbeats, conflicting subscriptions, counts of changes, and a name of 4.9",
        "brokerStatus",
        "not expected: .*(heartbeatThreadPool|subscriptionConflicts|(topic|group|member)Changes|getTransferedTps)",
        passes=True,
    ),
    Purpose(
        "the answer says whether the subscription selects a message; Apache says that it selects no message",
        "queryCq .*CG_stay",
        "Filter data|null|eval=",
    ),
    Purpose(
        "mqadmin sent the message to the other queue: it chooses at random",
        "printMsgByQueue",
        "KEYS=stay7|Tag: TagB",
        passes=True,
    ),
    Purpose(
        "a topic is not listed among its own groups",
        "queryMsgBy|statsAll|topicList",
        r"missing: .*(consumerGroup=StayTopic|StayTopic StayTopic)",
    ),
    Purpose("all answers have the values that 5.3 adds", "brokerStatus", "not expected: ", "4.9.7", passes=True),
    Purpose("the topics that 5.3 adds exist", "topicList|statsAll", _NEW_TOPICS, "4.9.7", passes=True),
    Purpose("offsets of a missing group are refused, as in 5.3", "cloneGroupOffset", ".", "4.9.7", passes=True),
    Purpose(
        "a missing group is answered with 26, as by 5.3, and not with 1",
        "CG_offline",
        r"CODE: (1|26) ",
        "4.9.7",
        passes=True,
    ),
    Purpose(
        "an invalid request is answered with 29, as by 5.3, and not with 1",
        r"bad\*topic",
        r"CODE: (1|29) ",
        "4.9.7",
        passes=True,
    ),
    Purpose("some settings cannot be changed by a request, as in 5.3", "brokerConfigPath", ".", "4.9.7", passes=True),
)


def _run(trial: Trial) -> None:
    WORK.mkdir(parents=True, exist_ok=True)
    for name, text in FILES.items():
        (WORK / name).write_text(text, "utf-8")
    with _servers(trial) as (ours, stay):
        facts = stay.facts | {BROKER: ours.ready["brokers"][0]["address"]}
        for command in captured(trial.version):
            printed = mqadmin(trial.version, ours.name_server, *command.filled(facts))
            with (ours.folder / f"{command.name}.txt").open("a", encoding="utf-8") as file:
                file.write(f"$ mqadmin {command.line}\n{printed.text}[exit {printed.code}]\n\n")
            flaws = flaws_of(command.printed, printed, trial.version, once=command.name in ONCE)
            judge(trial, command.line, flaws, PURPOSES)


@contextmanager
def _servers(trial: Trial) -> Iterator[tuple[OurServer, Stay]]:
    """Servers, and a live group whose first message is in the same queue as when this was captured."""
    wanted = first_queue(trial.version)
    for start in range(STARTS):
        with (
            OurServer.both(trial.say, trial.folder / f"start-{start}", SETTINGS) as ours,
            Stay(trial.version, ours.name_server) as stay,
        ):
            if stay.first_queue == wanted or start == STARTS - 1:
                yield ours, stay
                return


SCENARIOS: Final = tuple(
    Scenario("mqadmin", [command.line for command in captured(version)], _run, [version]) for version in apache.VERSIONS
)
