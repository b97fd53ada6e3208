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
        "accounts are in a file that is read at the start: requests that manage users and rules are not served",
        "(User|Acl|AclConfig)( |$)",
        "CODE: [13] |RemotingTimeout",
    ),
    Purpose("settings that PocketMQ does not have are not listed", "get(Broker|Namesrv)Config", "."),
    Purpose("brokers have no epochs: they are not elected", "getBrokerEpoch", "CODE: [13] "),
    Purpose("reading old messages is not throttled", "ColdData", "."),
    Purpose("there is no slave whose progress could be set", "resetMasterFlushOffset", "."),
    Purpose("how the log is read ahead is left to the operating system", "setCommitLogReadAheadMode", "."),
    Purpose("pop consumption is not served", "setConsumeMode|exportPopRecord", "."),
    Purpose("topics are not mapped to queues of several brokers", "StaticTopic|AdminStatic", "."),
    Purpose(
        "the wait of heartbeats, conflicting subscriptions, counts of changes, and a name of 4.9 are added",
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
        "the message that was sent again went to the other queue: mqadmin chooses by chance",
        "printMsgByQueue",
        "KEYS=stay7|Tag: TagB",
        passes=True,
    ),
    Purpose(
        "a topic is not listed among its own groups",
        "queryMsgBy|statsAll|topicList",
        r"missing: .*(consumerGroup=StayTopic|StayTopic StayTopic)",
    ),
    Purpose("values that 5.3 added to 4.9 are in all answers", "brokerStatus", "not expected: ", "4.9.7", passes=True),
    Purpose("topics that 5.3 has and 4.9 has not are there", "topicList|statsAll", _NEW_TOPICS, "4.9.7", passes=True),
    Purpose(
        "offsets of a group that is not there are refused, as in 5.3", "cloneGroupOffset", ".", "4.9.7", passes=True
    ),
    Purpose(
        "a group that is not there is 26, as in 5.3, and not 1", "CG_offline", r"CODE: (1|26) ", "4.9.7", passes=True
    ),
    Purpose(
        "what is wrong with a request is 29, as in 5.3, and not 1",
        r"bad\*topic",
        r"CODE: (1|29) ",
        "4.9.7",
        passes=True,
    ),
    Purpose("some settings cannot be changed from afar, as in 5.3", "brokerConfigPath", ".", "4.9.7", passes=True),
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
