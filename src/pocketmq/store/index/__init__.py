"""The key index.

Modules in reading order:

    key_index            all index files: add and query
    index_file           the format of one file: a hash table of keys
    growing_index_file   the file that grows, and how it reaches the disk
    index_builder        reads the log behind the writers and adds keys
"""
