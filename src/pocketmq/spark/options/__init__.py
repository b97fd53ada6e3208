"""Options of the connector: tables that define how each option is read, checked and documented.

Modules in reading order:

    options              what an option is: name, type, default, check
    connection_options   name servers, credentials, TLS
    read_options         options of batch and streaming reads
    metadata_options     options of reads of metadata
    write_options        options of writes
"""
