"""The parts of the suite: each is a section of docs/generated/compatibility.md, and a word for `--part`. A new part is one line in PARTS."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from conformance import apache
from conformance.cdc import databases
from conformance.cli import commands
from conformance.clients import conversations
from conformance.clusters import mixed
from conformance.groups import shared_groups
from conformance.guests import programs as guest_programs
from conformance.guests import visits
from conformance.lake import tables
from conformance.lines import crossings
from conformance.mqadmin import subcommands
from conformance.pops import shared_pops
from conformance.python import against
from conformance.replicas import pairs
from conformance.report import Scenario
from conformance.sdk import against as against_sdk
from conformance.security import encrypted_lines, signatures
from conformance.spark import same_tests
from conformance.store import kills, locks, removals, turns
from conformance.times import bounds


class Part(NamedTuple):
    """Scenarios that make one section of the page."""

    heading: str
    title: str
    scenarios: Sequence[Scenario]
    columns: Sequence[str] = apache.VERSIONS
    """What the scenarios are run with, one column of the table each: versions of Apache, or clients."""
    unable: Callable[[str], str] = apache.unable
    """Why nothing can be run here for a column; empty when it can."""
    needs_recordings: bool = False
    """What Apache printed, as it was captured, is the measure."""
    is_alone: bool = False
    """It measures times, or takes the standard output for itself, so nothing else runs meanwhile."""


PARTS: Final = {
    # First, as it takes longest: one Java program after the other, for eight minutes.
    "mqadmin": Part("mqadmin", "mqadmin with PocketMQ's servers", subcommands.SCENARIOS, needs_recordings=True),
    "store": Part(
        "Store",
        "stores of PocketMQ and Apache RocketMQ",
        (*turns.SCENARIOS, *removals.SCENARIOS, *kills.SCENARIOS, *locks.SCENARIOS),
    ),
    "clients": Part(
        "Clients",
        "the Java client with PocketMQ's servers",
        conversations.SCENARIOS,
        conversations.VERSIONS,
        needs_recordings=True,
    ),
    "python": Part(
        "Python client",
        "PocketMQ's client with Apache RocketMQ and with PocketMQ's servers",
        against.SCENARIOS,
        against.COLUMNS,
        against.unable,
    ),
    "groups": Part(
        "Mixed groups",
        "groups of Java and Python members, by the broker that they have",
        shared_groups.SCENARIOS,
        shared_groups.COLUMNS,
        shared_groups.unable,
    ),
    "pop": Part(
        "POP",
        "groups of Java and Python members that pop, by broker and Java client",
        shared_pops.SCENARIOS,
        shared_pops.COLUMNS,
        shared_pops.unable,
    ),
    "guests": Part(
        "Other languages",
        "clients of other languages with PocketMQ's servers",
        visits.SCENARIOS,
        visits.COLUMNS,
        guest_programs.unable,
    ),
    "sdk": Part(
        "RocketMQ 5 clients",
        "the official clients of RocketMQ 5 by gRPC, by what serves them",
        against_sdk.SCENARIOS,
        against_sdk.COLUMNS,
        against_sdk.unable,
    ),
    "security": Part(
        "Security",
        "signed requests and TLS, by the broker that is talked to",
        (*signatures.SCENARIOS, *encrypted_lines.SCENARIOS),
        signatures.COLUMNS,
        signatures.unable,
    ),
    "times": Part(
        "Times", "times of PocketMQ's broker beside Apache's", bounds.SCENARIOS, bounds.COLUMNS, is_alone=True
    ),
    "cli": Part("Command line", "pocketmq's commands with Apache RocketMQ", commands.SCENARIOS, is_alone=True),
    "clusters": Part(
        "Mixed clusters",
        "servers of PocketMQ and Apache RocketMQ in one cluster",
        mixed.SCENARIOS,
        needs_recordings=True,
    ),
    "replicas": Part("Replicas", "masters and slaves of PocketMQ and Apache RocketMQ", pairs.SCENARIOS),
    "lines": Part("Bad lines", "messages that have to cross a bad line", crossings.SCENARIOS),
    "lake": Part("Lake", "archives into tables", tables.SCENARIOS, tables.COLUMNS, tables.unable, is_alone=True),
    "cdc": Part(
        "Change data capture",
        "changes of PostgreSQL by Debezium into tables",
        databases.SCENARIOS,
        databases.COLUMNS,
        databases.unable,
        is_alone=True,
    ),
    "spark": Part("Spark", "the Spark connector with Apache RocketMQ", same_tests.SCENARIOS, is_alone=True),
}
