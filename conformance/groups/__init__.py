"""Groups with members of both clients: queues are shared without overlap while members come and go.

java_member.py      a member that is the Java client, in a process of its own
shared_groups.py    the story: one group for each strategy, four members, all of it with PocketMQ's broker and with Apache's
"""
