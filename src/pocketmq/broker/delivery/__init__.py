"""Delivery of messages that wait in a topic of the broker: delays, timers, retries.

Modules in reading order:

    forwarding       forwards a waiting message to its real topic; shared by delays and timers
    delays           delay levels: messages in SCHEDULE_TOPIC_XXXX
    timers           messages with a delivery time of their own: deliver, recall, and store again before retention
    timer_progress   the files that hold the progress of timers: timers.json, and RocketMQ's timercheck
    retries          whether a failed message goes to the retry topic or to the dead letter topic
"""
