"""Consumers: push, lite pull, pull and simple.

Modules in reading order:

    settings               the options of consumers
    subscriptions          subscriptions, and their filters
    listener               listeners: functions of the user, and their arguments
    push_consumer          AsyncPushConsumer
    lite_pull_consumer     AsyncLitePullConsumer
    pull_consumer          AsyncPullConsumer
    simple_consumer        AsyncSimpleConsumer, and its group member
    leases                 messages that brokers lease to a consumer
    popping                pop requests, their responses and events
    async_consumer         base of the async consumers
    blocking_consumers     PushConsumer, LitePullConsumer, PullConsumer and SimpleConsumer
    group_member           base of the group members of push and lite pull consumers
    lite_pull_member       the group member of a lite pull consumer
    allocation             allocation strategies: pure functions of members and queues
    rebalance              when and how queues are allocated again
    assignment             acquires and releases the queues of this member; queue locks
    first_offsets          the offset at which a newly assigned queue starts
    process_queue          pulled messages that are not consumed yet; finds the offset to commit
    pull_position          the offset of the next pull; detects a log that became shorter
    flow_limits            when the pulls of a queue pause
    pulling                pull requests, their responses and events
    pull_loop              pulls one assigned queue within the flow limits
    pop_loop               pops the assigned queues of a push consumer, as far as its workers need
    direct_pulls           pulls over blocking sockets, for threads that read megabytes
    dispatch               worker threads, loops and processes that call listeners
    jobs                   batches of listener calls for one worker
    listening              base of concurrent and orderly listening, and their events for hooks and the log
    concurrent_listening   concurrent consumption
    orderly_listening      orderly consumption, under the broker's queue lock
    consume_result         what a listener returns, and what follows for each message
    settling               what follows: offsets and send-backs, or acks and returns of leases
    retry_sender           sends failed messages back to the broker, or to the retry topic
    offsets                stores offsets: at the broker, or in a local file when broadcasting
    consume_stats          statistics and running info of a consumer
"""
