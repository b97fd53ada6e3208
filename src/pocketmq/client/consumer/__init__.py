"""Consumers: push, lite pull and pull.

Modules in reading order:

    settings               every option of a consumer
    listener               a listener function: its kinds, and what it is called with
    push_consumer          AsyncPushConsumer
    lite_pull_consumer     AsyncLitePullConsumer
    pull_consumer          AsyncPullConsumer
    async_consumer         base of the async consumers
    blocking_consumers     PushConsumer, LitePullConsumer and PullConsumer
    group_member           a member of a consumer group: what push and lite pull consumers share
    lite_pull_member       a member whose user polls
    allocation             allocation strategies: pure functions of members and queues
    rebalance              when and how queues are allocated again
    assignment             the queues that this member owns; adds and removes them
    first_offsets          the offset at which a newly assigned queue starts
    process_queue          pulled messages that are not consumed yet; finds the offset to commit
    pull_position          where the next pull of a queue begins, and by what its log is recognised
    flow_limits            how much a queue may hold before its pulls pause
    pulling                one pull request and the meaning of its response
    pull_loop              pulls one queue for as long as it is owned, within the flow limits
    direct_pulls           pulls over blocking sockets, for threads that read megabytes
    dispatch               worker threads and loops that call listeners
    jobs                   batches of listener calls for one worker
    concurrent_listening   concurrent consumption
    orderly_listening      orderly consumption, under the broker's queue lock
    consume_result         what a listener returns, and what that means for each message
    consume_events         what hooks and the log learn about consumption
    retry_sender           sends failed messages back to the broker, or to the retry topic
    offsets                commits offsets: to the broker, or to a local file when broadcasting
    consume_stats          rates of consumption, reported in the consumer's running info
"""
