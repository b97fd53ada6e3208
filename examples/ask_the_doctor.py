"""Run the doctor to find out why messages do not arrive. It names the first broken step and the remedy.

Prints:
    topic: topic ordres does not exist: No route info of this topic. Did you mean orders? Otherwise, create it with `pocketmq topic create ordres`.
    group: group billing has no members
    ✓ address ✓ name server ✓ route ✓ broker ✓ permission ✓ topic ✗ group
"""

import asyncio
from contextlib import aclosing

from pocketmq import Admin, Server, doctor

MARKS = {doctor.Verdict.OK: "✓", doctor.Verdict.BROKEN: "✗"}


async def examine_until_broken(name_server: str) -> None:
    """Run the steps one by one, and stop at the first broken one."""
    results = []
    async with aclosing(doctor.examine_steps(name_server, topic="orders", group="billing")) as steps:
        async for step in steps:
            results.append(f"{MARKS.get(step.verdict, '?')} {step.name}")
            if step.verdict is doctor.Verdict.BROKEN:
                break
    print(*results)


with Server(settings={"autoCreateTopicEnable": False}) as server:
    with Admin(server.name_server) as admin:
        admin.topics.create("orders")
        admin.groups.create("billing")

    print(doctor.examine(server.name_server, topic="ordres").sentence)

    report = doctor.examine(server.name_server, topic="orders", group="billing")
    assert report.first_broken is not None
    print(f"{report.first_broken.name}: {report.first_broken.finding.text}")

    asyncio.run(examine_until_broken(server.name_server))
