"""Messages do not arrive, and the doctor says why: the first broken step of the way, and what to do.

Prints:
    topic: no broker has the topic ordres. Did you mean orders? Else `pocketmq topic create ordres` makes it.
    group: nobody is in group billing now
    ✓ address ✓ name server ✓ route ✓ broker ✓ permission ✓ topic ✗ group
"""

import asyncio
from contextlib import aclosing

from pocketmq import Admin, Server, doctor

MARKS = {doctor.Verdict.FINE: "✓", doctor.Verdict.BROKEN: "✗"}


async def walk(name_server: str) -> None:
    """Step by step, as they are looked at; no further than the first that is broken."""
    seen = []
    async with aclosing(doctor.walk(name_server, topic="orders", group="billing")) as steps:
        async for step in steps:
            seen.append(f"{MARKS.get(step.verdict, '?')} {step.name}")
            if step.verdict is doctor.Verdict.BROKEN:
                break
    print(*seen)


with Server(settings={"autoCreateTopicEnable": False}) as server:
    with Admin(server.name_server) as admin:
        admin.topics.create("orders")
        admin.groups.create("billing")

    print(doctor.examine(server.name_server, topic="ordres").sentence)

    report = doctor.examine(server.name_server, topic="orders", group="billing")
    assert report.first_broken is not None
    print(f"{report.first_broken.name}: {report.first_broken.finding.text}")

    asyncio.run(walk(server.name_server))
