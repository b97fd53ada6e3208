"""The name server: brokers tell it where they are and which topics they have, clients ask it. It keeps nothing but the little
that it is told to remember; several of them share nothing, and everybody knows them all.

    net.server ──► dispatcher ──► handlers ──► routes (brokers, topics)      pure, told the time
                                         ├──► kv_config                      one file, replaced as a whole
                                         └──► settings in use                a few may change while it runs
"""
