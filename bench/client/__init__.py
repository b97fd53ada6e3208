"""Benchmarks of the client, compared with redis-py, nats-py and RocketMQ's Java client where they are installed."""
