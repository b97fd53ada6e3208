"""Mirrors topics to another cluster: every message once, in the order of its queue, and a map of offsets between the clusters.

    cluster A  orders queue 0 ──► queue 0 orders  cluster B       messages of a queue go to one queue, one batch after the other
               orders queue 1 ──► queue 1
                                     │
    offset map   A:0 from 500 ═ B:0 from 0, 1,000 messages        so that groups can continue at B where they were at A

Each copy names its origin in the property `mirrorOf`. After a restart, the mirror reads the end of the target queues: the copies there
show what was sent, whether or not the progress was saved.

Modules in reading order:

    offset_map   ranges of offsets with the same messages on both clusters
    copying      copies whole queues in order, in Spark tasks
    job          `pocketmq pipeline mirror`
"""
