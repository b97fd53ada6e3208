"""Celery on RocketMQ: a task with a countdown, run by a worker in this process, and its result.

Prints:
    1 + 2 = 3
"""

from celery import Celery
from celery.contrib.testing.worker import start_worker

import pocketmq.integrations.celery  # registers rocketmq://

with pocketmq.Server() as server:
    app = Celery("shop", broker=f"rocketmq://{server.name_server}", backend="rpc://")

    @app.task
    def add(one: int, two: int) -> int:
        return one + two

    with start_worker(app, perform_ping_check=False, loglevel="ERROR"):
        result = add.apply_async((1, 2), countdown=0.5)
        print("1 + 2 =", result.get(timeout=30))
    app.close()
