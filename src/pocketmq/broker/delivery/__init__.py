"""Delivery of waiting messages: delay levels and timers.

Modules in reading order:

    forwarding       sends a waiting message on to its real topic; shared by delays and timers
    delays           delay levels: messages in SCHEDULE_TOPIC_XXXX
    timers           messages with a delivery time of their own: deliver, recall, and store again before retention
    timer_progress   what timers keep: timers.json, RocketMQ's timercheck, delivered and waiting messages
"""
