"""The pages of the console, by section of the menu. `PAGES` and `ACTIONS` of each module have the paths.

Modules in reading order:

    overview      rates, lag, disk, rejected requests, and charts of the last hour
    topics        topics: configuration, queues; create, change, delete
    groups        consumer groups: lag, members, queues; reset with a preview
    messages      messages of a topic: browse, search, one message with its trace
    dead_letters  dead letters: reasons, edit and resend one, resend all
    pending       delayed messages and undecided transactions
    cluster       brokers, clients, pipelines on Spark, and the doctor
"""
