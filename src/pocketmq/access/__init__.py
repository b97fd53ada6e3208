"""Authentication and authorization of requests, for the broker and the name server.

Modules in reading order:

    accounts         accounts and their permissions, as values
    accounts_file    reads the TOML file of accounts, and reads it again after a change
    authentication   verifies the signature and the permissions of each request; counts, logs and limits rejected ones
    settings         the access settings in broker.conf and namesrv.conf
"""
