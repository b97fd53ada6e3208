"""Consume queues.

Modules in reading order:

    consume_queue   one queue: 20-byte entries
    queues          all queues by topic and queue id; opens files on demand
    queue_writer    writes entries to their files in a thread
    sound_entries   entries for readers, compared with the log
    queue_entries   read-only access to the entries of a queue, for tools
"""
