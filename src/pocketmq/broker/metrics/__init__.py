"""The numbers of a broker for Prometheus, under the names that RocketMQ 5 gives them where it has one.

messages   in, out, sent back, dead, delayed, undecided        by topic and group
lags       how far groups are behind, in messages and time     looked up in steps, when somebody asks
requests   connections, who waits, who was refused and why, how long storing, reading and waiting took
storage    the log, what is not safe yet, what is made from it, the disk
"""
