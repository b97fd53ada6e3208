"""One cluster's topics on another: every message once, in the order of its queue, and a map of offsets from here to there.

    cluster A  orders queue 0 ──► queue 0 orders  cluster B       messages of a queue go to one queue, one batch after the other
               orders queue 1 ──► queue 1
                                     │
    offset map   A:0 from 500 ═ B:0 from 0, 1,000 messages        so that groups can go on at B where they were at A

Each copy says where it comes from, in the property `mirrorOf`. A run that begins again looks at the end of the target queues: what
is there tells how far it was, whatever was noted.

Modules in reading order:

    offset_map   ranges of offsets of both clusters that hold the same messages
    copying      copies whole queues in their order, inside Spark tasks
    job          `pocketmq pipeline mirror`
"""
