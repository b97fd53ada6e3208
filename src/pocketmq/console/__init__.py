"""The web console: pages about a running cluster, for people. It asks by the same admin calls as `mqadmin`, so any RocketMQ will do.

    browser ── GET ──► guard ── page ──► snapshot   what one collector, shared by all, asks every few seconds
                                    └──► answers    what one page needs beside that; remembered for a moment, for all
            ◄─ server-sent events ── the page's live part, made once for all who look at it
            ── POST ─► guard: session, CSRF token, may this user change anything? ──► admin

It needs the extra `console`, and is started by `pocketmq console` or `pocketmq serve --console` as a process of its own.
"""
