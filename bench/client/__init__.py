"""Benchmarks of the client, beside redis-py, nats-py and RocketMQ's Java client where they are installed."""
