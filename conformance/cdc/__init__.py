"""Change data capture with its real parts: PostgreSQL, Debezium Server with its sink for RocketMQ, a broker, Spark, a table."""
