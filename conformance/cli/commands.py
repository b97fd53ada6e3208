"""A day at a cluster of Apache RocketMQ with nothing but `pocketmq`: topics, messages, groups, dead letters, transactions, delays.

Each check is a command; it passes when the command ends as it should and says what is so. Members and producers that the story
needs are clients of PocketMQ in this process.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

import pocketmq
from conformance.apache import ApacheBroker
from conformance.cli.shell import WAIT_S, Ran, Shell
from conformance.report import Scenario, Trial

SETTINGS: Final = {
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 2000,
    "transactionCheckMax": 10,
    "recallMessageEnable": "true",
    "traceTopicEnable": "true",
}
OLD: Final = "4.9"
NO_TIMERS: Final = "RocketMQ 4.9 has no timed messages, so there is nothing to recall"

Check = Callable[["Day"], Iterable[str]]


class Day:
    """What the story has come to."""

    def __init__(self, trial: Trial, shell: Shell, name_server: str) -> None:
        self.trial = trial
        self.shell = shell
        self.name_server = name_server
        self.message_id = ""
        self.committed: list[bytes] = []

    @property
    def is_old(self) -> bool:
        return self.trial.version.startswith(OLD)


def _topic_create(day: Day) -> Iterator[str]:
    yield from day.shell.run("topic", "create", "orders", "--queues", 2).flaws(0, "Created topic orders with 2 queues")
    yield from day.shell.run("topic", "create", "orders").flaws(64, "is on broker")


def _topic_ls(day: Day) -> Iterator[str]:
    yield from day.shell.run("topic", "ls", "--long").flaws(0, "orders", "rw")


def _topic_show(day: Day) -> Iterator[str]:
    yield from day.shell.run("topic", "show", "orders").flaws(0, "2 read queues, 2 write queues, rw")
    yield from day.shell.run("topic", "show", "nothing").flaws(3, "pocketmq topic ls")


def _topic_alter(day: Day) -> Iterator[str]:
    yield from day.shell.run("topic", "alter", "orders", "--queues", 3).flaws(0, "Changed topic orders")
    [row] = day.shell.rows("topic", "show", "orders")
    if row["queues"] and len(row["queues"]) != 3:
        yield f"it has {len(row['queues'])} queues, not 3"


def _msg_send(day: Day) -> Iterator[str]:
    sent = day.shell.run("msg", "send", "orders", "first", "--key", "1001", "--tag", "new", "--json")
    yield from sent.flaws()
    day.message_id = sent.rows[0]["message_id"]


def _msg_tail(day: Day) -> Iterator[str]:
    yield from day.shell.run("msg", "tail", "orders", "--no-follow").flaws(0, "first", "[new 1001]")


def _msg_find(day: Day) -> Iterator[str]:
    found = day.shell.until(lambda ran: ran.rows, "msg", "find", "orders", "--key", "1001", "--json")
    yield from found.flaws(0, day.message_id)
    yield from day.shell.run("msg", "find", "orders", "--since", "1h").flaws(0, "first")


def _msg_get(day: Day) -> Iterator[str]:
    yield from day.shell.run("msg", "get", "orders", day.message_id).flaws(0, "first")


def _msg_trace(day: Day) -> Iterator[str]:
    with pocketmq.Producer(day.name_server, group="tracers", trace=True) as producer:
        message_id = producer.send("orders", b"traced", keys="t1").message_id
    yield from day.shell.until(lambda ran: "sent" in ran.out, "msg", "trace", "orders", message_id).flaws(
        0, "sent", "stored", "group tracers"
    )


def _group_ls(day: Day) -> Iterator[str]:
    yield from day.shell.run("group", "ls", "--long").flaws(0, "billing")


def _group_show(day: Day) -> Iterator[str]:
    yield from day.shell.run("group", "show", "billing").flaws(0, "orders (*)", "CLUSTERING")


def _group_members(day: Day) -> Iterator[str]:
    yield from day.shell.run("group", "members", "billing").flaws(0, "orders@broker-a:0")


def _group_lag(day: Day) -> Iterator[str]:
    def is_done(ran: Ran) -> bool:
        return bool(ran.rows) and ran.rows[-1]["lag"] == 0

    yield from day.shell.until(is_done, "group", "lag", "billing", "--topic", "orders", "--json").flaws(0, '"lag":0')


def _doctor_well(day: Day) -> Iterator[str]:
    ran = day.shell.run("doctor", "--topic", "orders", "--group", "billing")
    yield from ran.flaws(0, "No problem found")


def _doctor_broken(day: Day) -> Iterator[str]:
    yield from day.shell.run("doctor", "--topic", "ordres").flaws(
        3, "topic ordres does not exist", "Did you mean orders?"
    )
    yield from day.shell.run("doctor", "--group", "billing").flaws(3, "group billing has no members")


def _group_reset(day: Day) -> Iterator[str]:
    yield from day.shell.run("group", "reset", "billing", "orders", "--to", "earliest", "--dry-run").flaws(
        0, "to be consumed again"
    )
    yield from day.shell.run("group", "reset", "billing", "orders", "--to", "earliest", "--yes").flaws(0, "Done.")


def _group_clone(day: Day) -> Iterator[str]:
    with pocketmq.Admin(day.name_server) as admin:
        admin.groups.create("audit")
    yield from day.shell.run("group", "clone", "billing", "audit", "orders", "--yes").flaws(
        0, "Copied the offsets of group billing"
    )


def _group_rm(day: Day) -> Iterator[str]:
    yield from day.shell.run("group", "rm", "audit", "--yes").flaws(0, "Deleted group audit")


def _dlq_ls(day: Day) -> Iterator[str]:
    yield from day.shell.until(lambda ran: "billing" in ran.out, "dlq", "ls").flaws(0, "billing")


def _dlq_show(day: Day) -> Iterator[str]:
    yield from day.shell.run("dlq", "show", "billing").flaws(0, "orders", "bad")


def _dlq_export(day: Day) -> Iterator[str]:
    ran = day.shell.run("dlq", "export", "billing", "--body", "text")
    yield from ran.flaws(0, '"body":"bad"')


def _dlq_replay(day: Day) -> Iterator[str]:
    yield from day.shell.run("dlq", "replay", "billing", "--topic", "repaired", "--yes").flaws(0, "Sent 1 message.")


def _dlq_drop(day: Day) -> Iterator[str]:
    yield from day.shell.run("dlq", "drop", "billing", "--yes").flaws(0, "Deleted.")
    yield from day.shell.run("dlq", "ls").flaws(0, "There are no dead letters.")


def _topic_stats(day: Day) -> Iterator[str]:
    def is_counted(ran: Ran) -> bool:
        return any(row["last_minute"] for row in ran.rows)

    yield from day.shell.run("msg", "send", "orders", "counted").flaws()
    yield from day.shell.until(is_counted, "topic", "stats", "orders", "--json").flaws(0, '"who":"sent"')


def _tx_ls(day: Day) -> Iterator[str]:
    with _open_transaction(day, b"undecided") as transaction_id:
        ran = day.shell.until(lambda ran: transaction_id in ran.out, "tx", "ls")
        yield from ran.flaws(0, transaction_id, "payers")


def _tx_resolve(day: Day) -> Iterator[str]:
    with _open_transaction(day, b"decided") as transaction_id:
        resolve = ("tx", "resolve", transaction_id, "--commit", "--yes")
        yield from day.shell.until(lambda ran: ran.code == 0, *resolve).flaws(0, "Committed.")
        seen = day.shell.until(lambda ran: "decided" in ran.out, "msg", "tail", "paid", "--no-follow")
        yield from seen.flaws(0, "decided")


def _tx_check(day: Day) -> Iterator[str]:
    with _open_transaction(day, b"forgotten") as transaction_id:
        lost = day.shell.until(lambda ran: transaction_id in ran.out, "tx", "ls", "--given-up")
        yield from lost.flaws(0, transaction_id)
        yield from day.shell.run("tx", "check", transaction_id, "--yes").flaws(0, "checks the transaction again")


def _delay_ls(day: Day) -> Iterator[str]:
    yield from day.shell.run("msg", "send", "orders", "by level", "--delay-level", 18).flaws()
    yield from day.shell.run("delay", "ls").flaws(0, "level 18", "orders")


def _delay_cancel(day: Day) -> Iterator[str]:
    sent = day.shell.run("msg", "send", "orders", "by time", "--delay", "1h", "--json")
    message_id = sent.rows[0]["message_id"]
    yield from day.shell.until(lambda ran: message_id in ran.out, "delay", "ls").flaws(0, message_id)
    yield from day.shell.run("delay", "cancel", message_id, "--yes").flaws(0, "Recalled 1 message.")
    yield from day.shell.until(lambda ran: message_id not in ran.out, "delay", "ls").flaws()
    if message_id in day.shell.run("delay", "ls").out:
        yield "it still waits"
    level = [row["id"] for row in day.shell.rows("delay", "ls") if row["level"] == 18]
    yield from day.shell.run("delay", "cancel", level[0], "--yes").flaws(64, "has delay level")


def _cluster_show(day: Day) -> Iterator[str]:
    yield from day.shell.run("cluster", "show").flaws(0, "broker-a", "DefaultCluster")


def _cluster_config(day: Day) -> Iterator[str]:
    yield from day.shell.run("cluster", "config", "--contains", "fileReserved").flaws(0, "fileReservedTime", "72")
    change = ("cluster", "config", "broker-a", "--set", "fileReservedTime=48")
    yield from day.shell.run(*change, "--dry-run").flaws(0, "48")
    yield from day.shell.run(*change, "--yes").flaws(0, "fileReservedTime is 48")
    yield from day.shell.run("cluster", "config", "--set", "storePathRootDir=x", "--yes").flaws(
        64, "is not changed while"
    )


def _group_mode(day: Day) -> Iterator[str]:
    ran = day.shell.run("group", "mode", "billing", "orders", "POP")
    if day.is_old:
        yield from ran.flaws(3)
        return
    yield from ran.flaws(0, "POP", "all members")
    yield from day.shell.run("group", "mode", "billing", "orders", "PULL").flaws(0, "PULL")


def _export_leases(day: Day) -> Iterator[str]:
    ran = day.shell.run("cluster", "export-leases", "broker-a")
    yield from ran.flaws(3) if day.is_old else ran.flaws(0, "All leases of broker-a are in its log")


def _bench(day: Day) -> Iterator[str]:
    ran = day.shell.run("bench", "--seconds", 2, "--concurrency", 8)
    is_told = ran.code == 1 and ("Failed: " in ran.out or "Not read again" in ran.out)  # a machine may be too busy
    yield from ran.flaws(1 if is_told else 0, "messages a second", "end to end")
    if "pocketmq-bench" in day.shell.run("topic", "ls", "--all").out:
        yield "its topic is left"


def _topic_rm(day: Day) -> Iterator[str]:
    yield from day.shell.run("topic", "rm", "orders", "--yes").flaws(0, "Deleted topic orders")


MORNING: Final[dict[str, Check]] = {
    "topic create": _topic_create,
    "topic ls": _topic_ls,
    "topic show": _topic_show,
    "topic alter": _topic_alter,
    "msg send": _msg_send,
    "msg tail": _msg_tail,
    "msg find": _msg_find,
    "msg get": _msg_get,
    "msg trace": _msg_trace,
}
WITH_A_MEMBER: Final[dict[str, Check]] = {
    "group ls": _group_ls,
    "group show": _group_show,
    "group members": _group_members,
    "group lag": _group_lag,
    "doctor, all is well": _doctor_well,
}
EVENING: Final[dict[str, Check]] = {
    "doctor, something is broken": _doctor_broken,
    "group reset": _group_reset,
    "group clone": _group_clone,
    "group mode": _group_mode,
    "group rm": _group_rm,
    "dlq ls": _dlq_ls,
    "dlq show": _dlq_show,
    "dlq export": _dlq_export,
    "dlq replay": _dlq_replay,
    "dlq drop": _dlq_drop,
    "topic stats": _topic_stats,
    "tx ls": _tx_ls,
    "tx resolve": _tx_resolve,
    "tx check": _tx_check,
    "delay ls": _delay_ls,
    "delay cancel": _delay_cancel,
    "cluster show": _cluster_show,
    "cluster config": _cluster_config,
    "cluster export-leases": _export_leases,
    "bench": _bench,
    "topic rm": _topic_rm,
}


def _run(trial: Trial) -> None:
    with ApacheBroker(trial.version, trial.folder / "apache", SETTINGS, trial.say) as apache:
        day = Day(trial, Shell(apache.name_server), apache.name_server)
        for name, check in MORNING.items():
            trial.expect(name, check(day))
        with _member(day):
            for name, check in WITH_A_MEMBER.items():
                trial.expect(name, check(day))
        for name, check in EVENING.items():
            if name == "delay cancel" and day.is_old:
                trial.differ(name, NO_TIMERS)
            else:
                trial.expect(name, check(day))


@contextmanager
def _member(day: Day) -> Iterator[None]:
    """A member of billing, who gives up on one message."""
    buried = threading.Event()

    def handle(message: pocketmq.StoredMessage) -> None:
        if message.body == b"bad":
            buried.set()
            raise pocketmq.DeadLetter("no such customer")

    consumer = pocketmq.PushConsumer(day.name_server, group="billing", start_at="first")
    consumer.on("orders")(handle)
    with consumer, pocketmq.Producer(day.name_server, group="senders") as producer:
        producer.send("orders", b"bad")
        assert buried.wait(WAIT_S), "the member got no message"
        yield


@contextmanager
def _open_transaction(day: Day, body: bytes) -> Iterator[str]:
    """One whose producer does not know how it ends."""
    with pocketmq.Producer(
        day.name_server, group="payers", check=lambda _: pocketmq.TransactionState.UNKNOWN
    ) as producer:
        transaction = producer.transaction("paid")
        sent = transaction.send(body)
        transaction.leave_open()
        yield sent.message_id  # RocketMQ 4.9 does not tell the transaction's id, which is the same


SCENARIOS: Final = (Scenario("a day with nothing but pocketmq", (*MORNING, *WITH_A_MEMBER, *EVENING), _run),)
