"""The Spark connector with Apache's brokers: the same tests that `make test` runs with PocketMQ's."""
