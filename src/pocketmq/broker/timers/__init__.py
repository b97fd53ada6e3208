"""Timers: messages that are due at a time of their own, up to days ahead.

    rmq_sys_wheel_timer ──read──► waiting.py    log offsets by due time, in memory: eight bytes a message
                                     │ due
                                     ├─► its own topic          frontier.py   which of those that were read are done
                                     ├─► nowhere: recalled      progress.py   the file of it, timers.json
                                     └─► rmq_sys_wheel_timer again, before retention takes the record: rolled
    timers.py does it; records.py knows what a record asks for, rates.py how many there were a second.

Nothing but the log is needed: what waits is read again after every start, from the oldest message that still waits. RocketMQ keeps
the same knowledge in two files of its own, timerwheel and timerlog, which are neither read nor written here.
"""

from pocketmq.broker.timers.progress import TimerCheck, TimerProgress
from pocketmq.broker.timers.timers import TimerLimits, Timers

__all__ = ["TimerCheck", "TimerLimits", "TimerProgress", "Timers"]
