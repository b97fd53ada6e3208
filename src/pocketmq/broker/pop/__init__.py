"""POP: members lease messages for a time instead of owning queues.

    pop ──► leased ─┬─ acknowledged ──────────────► done
                    ├─ its time is changed ───────► leased again
                    └─ its time is over ──────────► retry topic ──► popped again … after the last attempt: dead letter

Modules in reading order:

    records      check points and acks in the log, by the C twin
    journal      the same with all that they change, in Python where the twin does not do it
    reading      which messages a pop gets, and its answer
    popping      the requests POP, PEEK, NOTIFICATION and POLLING_INFO; long polling
    acks         the requests ACK, BATCH_ACK and CHANGE_MESSAGE_INVISIBLETIME
    revive       the end of leases, and what is left of them after a restart
    assignment   which queues a member consumes, and whether it pulls or pops them

The tables are `groups.leases` and `groups.orders`; held pops are in `reads.waiting_pops`.
"""
