"""The hot path: from the bytes of a socket read to handlers and back.

Modules in reading order:

    turns      a turn: everything that one read from a socket requests, alone or with the sends of other connections
    log_turn   the end of a turn: one write to the log, queue entries, answers
    flow       flow control: requests that wait, for how long, and how they are rejected
"""
