"""A master of one side and a slave of the other: their logs are the same bytes.

our master ──► Apache's slave        Apache's master ──► our slave        found through Apache's name server
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from conformance import apache
from conformance.apache import ApacheBroker
from conformance.broker_line import BrokerLine
from conformance.programs import OurServer
from conformance.report import Scenario, Trial
from pocketmq import Message, PocketMQError, Producer
from pocketmq.codes import RequestCode, ResponseCode
from pocketmq.protocol.api.messages import SendMessageV2

FILE_BYTES: Final = 1024 * 1024
TOPIC: Final = "Copied"
BODY: Final = b"x" * 1000
MESSAGES: Final = 2_500
"""Enough for three files of the log."""
WAIT_S: Final = 120

SIZES: Final = {"mappedFileSizeCommitLog": FILE_BYTES, "maxHashSlotNum": 5000, "maxIndexNum": 20000}
OURS: Final = {**SIZES, "brokerRole": "ASYNC_MASTER", "autoCreateTopicEnable": "true"}

FOLLOWS: Final = "Apache's slave follows our master: the same bytes, across three files"
COPIED: Final = "our SYNC_MASTER answers sends when Apache's slave has them"
AT_ONCE: Final = "… and then the logs are the same without a wait"
ALONE: Final = "… and with SLAVE_NOT_AVAILABLE when the slave was killed"
TABLES: Final = "… and copies the topics"
READS: Final = "… and answers pulls, with the topics of its master"
FOLLOWED: Final = "our slave follows Apache's master: the same bytes, across three files"
DERIVED: Final = "… and derives the same queues"
AGAIN: Final = "… after it was stopped, and Apache's master stored more"
MASTER_KILLED: Final = "… after Apache's master was killed and started again"
AFTER_KILL: Final = "… after it was killed and started again"


def _run_apache_slave(trial: Trial) -> None:
    with _apache_slave(trial) as slave:
        ours = OurServer.broker(trial.say, trial.folder / "ours", "broker-a", slave.name_server, OURS)
        with ours:
            _wait_linked(ours, slave)
            send(slave.name_server, MESSAGES)
            trial.expect(FOLLOWS, differing(ours, slave))
            slave.kill()
            slave.start()
            send(slave.name_server, 500)
            trial.expect(AFTER_KILL, differing(ours, slave))
            trial.expect(TABLES, waited(lambda: _flaw_of_topics(slave)))


def _run_sync_master(trial: Trial) -> None:
    with _apache_slave(trial) as slave:
        settings = {**OURS, "brokerRole": "SYNC_MASTER"}
        ours = OurServer.broker(trial.say, trial.folder / "ours", "broker-a", slave.name_server, settings)
        with ours, BrokerLine(ours.ready["port"]) as line:
            send(slave.name_server, 1)
            for flaw in differing(ours, slave):
                raise AssertionError(f"the slave does not follow: {flaw}")
            trial.expect(COPIED, _flaws_of_sends(line, ResponseCode.SUCCESS))
            trial.expect(AT_ONCE, [difference_now] if (difference_now := _difference(ours, slave)) else [])
            slave.kill()
            trial.expect(ALONE, _flaws_of_sends(line, ResponseCode.SLAVE_NOT_AVAILABLE))


def _flaws_of_sends(line: BrokerLine, code: int) -> Iterator[str]:
    for number in range(50):
        header = SendMessageV2("PG", TOPIC, "TBW102", 4, 0, 0, 1, 0, f"KEYS\x01s{number}")
        answer = line.call(RequestCode.SEND_MESSAGE_V2, header, BODY, accepted=range(100))
        if answer.code != code:
            yield f"send {number} is answered with {answer.code}: {answer.remark}"


def _difference(ours: OurServer, other: ApacheBroker) -> str:
    return difference(Path(ours.ready["data"]) / "commitlog", other.data / "store" / "commitlog")


def _apache_slave(trial: Trial) -> ApacheBroker:
    """A slave that learns the address of its master from its name server."""
    settings = {**SIZES, "brokerRole": "SLAVE", "brokerId": 1}
    return ApacheBroker(trial.version, trial.folder / "apache", settings, trial.say)


def _wait_linked(ours: OurServer, slave: ApacheBroker) -> None:
    """Send one message and wait for the slave: one that connects late would begin at the newest file."""
    send(slave.name_server, 1)
    for flaw in differing(ours, slave):
        raise AssertionError(f"the slave does not follow: {flaw}")


def send(name_server: str, count: int) -> None:
    """Send messages, as soon as there is a master."""
    end = time.monotonic() + WAIT_S
    with Producer(name_servers=name_server, group="PG") as producer:
        for number in range(count):
            while True:
                try:
                    producer.send(Message(TOPIC, BODY, keys=f"k{number}"))
                    break
                except PocketMQError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(1)


def log_files(folder: Path) -> dict[str, bytes]:
    """The used files of a log: those created ahead are empty."""
    found = {}
    for path in sorted(folder.glob("*")):
        data = path.read_bytes()
        if any(data):
            found[path.name] = data
    return found


def differing(ours: OurServer, other: ApacheBroker) -> Iterator[str]:
    """Wait until both logs are the same; how they differ if they do not become so."""
    yield from waited(lambda: _difference(ours, other))


def waited(look: Callable[[], str]) -> Iterator[str]:
    end = time.monotonic() + WAIT_S
    while found := look():
        if time.monotonic() > end:
            yield found
            return
        time.sleep(0.5)


def difference(mine: Path, theirs: Path) -> str:
    one, other = log_files(mine), log_files(theirs)
    if not one:
        return f"no log in {mine}"
    if one.keys() != other.keys():
        return f"our log has the files {list(one)}, Apache's {list(other)}"
    for name, data in one.items():
        if data != other[name]:
            at = next(at for at, pair in enumerate(zip(data, other[name], strict=False)) if pair[0] != pair[1])
            return f"file {name} differs at {at}: {data[at : at + 8].hex()} and {other[name][at : at + 8].hex()}"
    return ""


def _run_our_slave(trial: Trial) -> None:
    with ApacheBroker(trial.version, trial.folder / "apache", SIZES, trial.say) as master:
        send(master.name_server, 1)
        settings = {**SIZES, "brokerRole": "SLAVE", "brokerId": 1, "slaveReadEnable": "true"}
        ours = OurServer.broker(trial.say, trial.folder / "ours", "broker-a", master.name_server, settings)
        with ours:
            flaws = list(differing(ours, master))
            send(master.name_server, MESSAGES)
            trial.expect(FOLLOWED, [*flaws, *differing(ours, master)])
            trial.expect(DERIVED, differing_queues(ours, master))
            trial.expect(READS, waited(lambda: _flaw_of_reads(ours, master)))
        send(master.name_server, 500)
        with ours:
            trial.expect(AGAIN, differing(ours, master))
            master.kill()
            master.start()
            send(master.name_server, 500)
            trial.expect(MASTER_KILLED, differing(ours, master))


def differing_queues(ours: OurServer, other: ApacheBroker) -> Iterator[str]:
    """Ask both brokers for the bounds of each queue."""
    with BrokerLine(ours.ready["port"]) as mine, BrokerLine(other.port) as theirs:
        for queue_id in range(4):
            bounds = [(line.min_offset(TOPIC, queue_id), line.max_offset(TOPIC, queue_id)) for line in (mine, theirs)]
            if bounds[0] != bounds[1]:
                yield f"queue {queue_id} has the bounds {bounds[0]} and {bounds[1]}"


def _flaw_of_topics(slave: ApacheBroker) -> str:
    path = slave.data / "store" / "config" / "topics.json"
    return "" if path.exists() and TOPIC in path.read_text() else f"{TOPIC} is not in topics.json"


def _flaw_of_reads(ours: OurServer, other: ApacheBroker) -> str:
    with BrokerLine(ours.ready["port"]) as mine, BrokerLine(other.port) as theirs:
        try:
            found, next_offset, code = mine.pull(TOPIC, 0, 0)
        except PocketMQError as error:
            return f"the slave does not answer a pull: {error}"
        wanted, *_ = theirs.pull(TOPIC, 0, 0)
        same = [one.body for one in found] == [one.body for one in wanted[: len(found)]]
        return "" if found and same else f"the pull is answered with {code}, {len(found)} messages, next {next_offset}"


SCENARIOS: Final = (
    Scenario("our SYNC_MASTER with Apache's slave", [COPIED, AT_ONCE, ALONE], _run_sync_master, apache.VERSIONS),
    Scenario("Apache's slave of our master", [FOLLOWS, AFTER_KILL, TABLES], _run_apache_slave, apache.VERSIONS),
    Scenario(
        "our slave of Apache's master",
        [FOLLOWED, DERIVED, READS, AGAIN, MASTER_KILLED],
        _run_our_slave,
        apache.VERSIONS,
    ),
)
