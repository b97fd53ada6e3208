"""Masters and slaves of PocketMQ and Apache RocketMQ that follow each other."""
