"""One client's view of a cluster: everything that producers, consumers and administrators share.

Modules in reading order:

    identity        client ids, addresses and message ids of this process
    rpc             calls servers by address; signs every request
    name_servers    requests to name servers; changes to the next one after a failure
    brokers         brokers by name: addresses and connections
    routes          topic routes, cached and refreshed every 30 s
    calls           the calls to brokers, by group: offsets, messages, members, groups, topics, state
    heartbeats      heartbeats to all brokers
    serving         requests that brokers send to a client
    instance        all of these together, shared by the clients of one loop
"""
