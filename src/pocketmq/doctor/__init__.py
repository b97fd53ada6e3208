"""`pocketmq.doctor`: why do messages not arrive? The whole way from an address to a handler is walked, and the first broken step named.

    report = doctor.examine("127.0.0.1:9876", topic="orders", group="billing")
    print(report.sentence)                              # group: nobody is in group billing now. Start a consumer …

    async for step in doctor.walk("127.0.0.1:9876"):    # as they are looked at
        print(step.name, step.verdict, step.finding.text)

It works with brokers of PocketMQ and of Apache RocketMQ 4.9 and 5.x, and changes nothing.

Modules in reading order:

    report     verdict and findings of each step
    visit      options, connections and intermediate results of one examination
    reaching   steps: addresses, name servers, brokers
    rights     steps: account, permissions, topic
    members    steps: group, members, subscriptions, owned queues
    machines   steps: disk, clock, flush mode, encryption, access of the brokers
    walk       runs all steps in order
"""

from pocketmq.doctor.report import Finding, Report, Step, Verdict
from pocketmq.doctor.visit import DoctorOptions, DoctorSettings
from pocketmq.doctor.walk import STEP_NAMES, async_examine, examine, walk

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
    "walk",
]
