"""One client's view of a cluster: everything that producers, consumers and administrators share.

Modules in reading order:

    identity        client ids, addresses and message ids of this process
    rpc             calls servers by address; signs every request
    name_servers    requests to name servers; changes to the next one after a failure
    routes          topic routes, cached and refreshed every 30 s
    calls           calls about groups, members, topics and broker state; reads their responses
    message_calls   calls about messages: view, query, send back, end transaction, recall
    brokers         brokers by name, with all calls
    heartbeats      heartbeats to all brokers
    serving         requests that brokers send to a client
    instance        all of these together, shared by the clients of one loop
"""
