"""A whole RocketMQ inside another program: a name server and a broker in one event loop. `pocketmq.Server` is its face."""
