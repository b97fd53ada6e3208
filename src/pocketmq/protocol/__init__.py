"""RocketMQ's remoting protocol, pure: bytes in, values out. No socket, no clock, no await."""
