"""The pages of the console, one module each: what it shows and which actions it has. `PAGES` and `ACTIONS` give the paths.

Modules in reading order:

    overview   rates, lag, disk, refusals, and charts of the last hour
    topics     topics: configuration, queues; create, change, delete
    groups     consumer groups: lag, members, queues; reset with a preview
    messages   messages of a topic: browse, search, one message with its trace
    letters    dead letters: reasons, edit and resend one, resend all
    waiting    delayed messages that are not due, and undecided transactions
    cluster    brokers, clients, pipelines on Spark, and the doctor
"""
