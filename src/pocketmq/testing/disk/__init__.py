"""A disk in memory that knows what a power loss may do to it.

contents     the bytes of one file: what is safe, and the changes that are not yet
names        folders: which name means which file, safe and not yet
power_loss   chance: which of the unsafe changes reached the disk
model        both together: operations go in, crash states come out
journal      every operation in order, so that one can go back
faults       rules that make a call fail or stall
drive        one call at a time: rules, disk, journal
faulty_file  an open file
real_folder  from and to a folder of a real disk

Tests use it through `pocketmq.testing.FaultyFiles`.
"""
