"""The command line of PocketMQ with Apache RocketMQ: every command that can apply there."""
