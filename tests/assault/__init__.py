"""Faults in a real server process, and a comparison of the acknowledged messages with the handled ones.

__main__    the command: which scenes run, and the table of their results
inject.c    a library that makes calls of the process fail, stall, be half done, or kill it; steps of its clock
injector    the driver's side of it
stage       a server process under attack, with a producer and a consumer group beside it
disk        scenes: the disk fails, stalls and is full; the process is killed at a chosen call
limits      scenes: descriptors, threads and memory run out; the clock steps
damage      scenes: derived files are damaged, the log becomes shorter, a topic is created again
hostile     scenes: frames that a client should not send, with and without accounts
"""
