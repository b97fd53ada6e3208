"""Java and Python members that pop messages of one group, with brokers of both kinds.

shared_pops.py     what they get with each setting of the broker, and while an administrator changes the mode
java_popper.py     a Java member
"""
