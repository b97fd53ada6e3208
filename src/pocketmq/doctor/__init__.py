"""`pocketmq.doctor`: find out why messages do not arrive.

An examination checks every step from the name server's address to the message handler, and reports the first one that is broken.

    report = doctor.examine("127.0.0.1:9876", topic="orders", group="billing")
    print(report.sentence)                              # group: group billing has no members. Start a consumer …

    async for step in doctor.examine_steps("127.0.0.1:9876"):    # one by one
        print(step.name, step.verdict, step.finding.text)

It works with brokers of PocketMQ and of Apache RocketMQ 4.9 and 5.x, and changes nothing.

Modules in reading order:

    report             verdict and findings of each step
    context            options, connections and intermediate results of one examination
    connection_checks  steps: addresses, name servers, routes, brokers
    topic_checks       steps: permission, topic
    group_checks       steps: group, subscription, queue owners, pulls, handlers, offsets, retention
    broker_checks      steps: disk, clock, flush mode, TLS, accounts
    examination        runs all steps in order
"""

from pocketmq.doctor.context import DoctorOptions, DoctorSettings
from pocketmq.doctor.examination import STEP_NAMES, async_examine, examine, examine_steps
from pocketmq.doctor.report import Finding, Report, Step, Verdict

__all__ = [
    "STEP_NAMES",
    "DoctorOptions",
    "DoctorSettings",
    "Finding",
    "Report",
    "Step",
    "Verdict",
    "async_examine",
    "examine",
    "examine_steps",
]
