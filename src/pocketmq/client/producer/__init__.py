"""Producers.

Modules in reading order:

    producer            AsyncProducer
    blocking_producer   Producer; sends over a blocking socket, for threads that wait for each result
    transactions        transactional sends, and answers to check-backs
    send_member         a member of a producer group: what both producers share; `send_many`, requests and replies
    outgoing            validates a message and encodes it: topic, properties, compression
    queue_choice        chooses a queue: the requested one, by a selector, or the next in turn
    fault_strategy      avoids brokers that failed or were slow
    pending             sends that wait for their result, the buffer of each topic, and the in-flight limit
    attempts            attempts and retries of a send until its deadline
    outbox              single sends of one loop iteration, written together
    batches             messages that share a destination become one batch request (linger)
    send_frames         encodes send requests from cached header text
    results             the result of a send
"""
