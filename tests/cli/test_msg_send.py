"""`pocketmq msg send` as a user meets it, on a real server."""

import json
import os

from tests.cli.running_cluster import RunningCluster

import pocketmq


def test_a_message_is_sent_with_all_its_options(cluster: RunningCluster) -> None:
    [sent] = cluster.ask(
        *("msg", "send", "sent", "hello", "--tag", "A", "--key", "k1", "--key", "k2", "--property", "colour=red")
    )

    [found] = cluster.ask("msg", "get", "sent", sent["message_id"])
    assert (sent["status"], sent["broker"]) == ("SEND_OK", "broker-a")
    assert (found["body"], found["tags"], found["keys"]) == ("hello", "A", ["k1", "k2"])
    assert found["properties"]["colour"] == "red"


def test_stdin_is_one_message_or_one_for_each_line(cluster: RunningCluster) -> None:
    whole = cluster.run("msg", "send", "piped", "-", "--json", text_in="a\nb\n")
    lines = cluster.run("msg", "send", "piped", "-", "--lines", "--json", text_in="c\n\nd\n")
    nothing = cluster.run("msg", "send", "piped", "-", text_in="")

    assert (len(whole.stdout.splitlines()), len(lines.stdout.splitlines())) == (1, 2)
    assert (nothing.exit_code, "stdin is empty" in nothing.stderr) == (64, True)
    bodies = [row["body"] for row in cluster.ask("msg", "tail", "piped", "--no-follow")]
    assert bodies == ["a\nb\n", "c", "d"]


def test_messages_sent_before_a_failure_are_reported(cluster: RunningCluster) -> None:
    lines = f"a\nb\n{'x' * 5_000_000}\nc\n"

    result = cluster.run("msg", "send", "half-way", "-", "--lines", "--json", text_in=lines)

    sent = [json.loads(line)["status"] for line in result.stdout.splitlines()]
    assert (result.exit_code, sent) == (3, ["SEND_OK", "SEND_OK"])
    assert "sent 2 of 4 messages; the next one failed: the body has 5000000 bytes" in result.stderr


def test_a_body_has_the_bytes_of_the_argument(cluster: RunningCluster) -> None:
    cluster.create("bytes")
    cluster.run("msg", "send", "bytes", os.fsdecode(b"\xff\xfe"))

    [found] = cluster.ask("msg", "tail", "bytes", "--no-follow", "--contains", os.fsdecode(b"\xfe"))

    assert (found["queue_offset"], found["size"] > 0) == (0, True)
    [shown] = cluster.ask("msg", "find", "bytes", "--since", "1h", "--body", "hex")
    assert shown["body"].replace(" ", "") == "fffe"


def test_an_invalid_message_is_wrong_usage(cluster: RunningCluster) -> None:
    for args, words in [
        (["x", "--lines"], "give - as BODY"),
        (["x", "--property", "colour"], "NAME=VALUE"),
        (["x", "--delay", "soon"], "'soon' is not a duration"),
        (["x", "--delay", "1s", "--delay-level", "1"], "give only one of"),
    ]:
        result = cluster.run("msg", "send", "wrong", *args)

        assert (result.exit_code, words in result.stderr) == (64, True), result.stderr


def test_a_delayed_message_is_not_visible_yet(cluster: RunningCluster) -> None:
    cluster.create("later")

    [sent] = cluster.ask("msg", "send", "later", "x", "--delay", "1h")

    assert sent["status"] == "SEND_OK"
    assert cluster.ask("msg", "tail", "later", "--no-follow") == []


def test_an_unknown_delay_level_of_the_brokers_is_wrong_usage(cluster: RunningCluster) -> None:
    result = cluster.run("msg", "send", "T", "later", "--delay-level", 19)

    assert result.exit_code == 64
    assert "the brokers have levels 1 to 18" in result.stderr


def test_additional_delay_levels_of_the_brokers_are_accepted() -> None:
    levels = " ".join(f"{n}s" for n in range(1, 21))
    with pocketmq.Server(settings={"messageDelayLevel": levels}) as server:
        result = RunningCluster(server).run("msg", "send", "T", "later", "--delay-level", 20)

    assert result.exit_code == 0, result.stderr
