"""The web console: pages about a running cluster. It uses the same admin requests as `mqadmin`, so it works with any RocketMQ.

    browser ── GET ──► guard ── page ──► snapshot   one collector asks the cluster every few seconds, for all pages
                                    └──► answers    what one page needs besides; cached for a moment, for all users
            ◄─ server-sent events ── the page's live part, rendered once for all who look at it
            ── POST ─► guard: session, CSRF token, permission to change anything ──► admin

It needs the extra `console`. `pocketmq console` and `pocketmq serve --console` start it as a process of its own.

Modules in reading order:

    settings    settings of the console, and which of them it refuses
    command     `python -m pocketmq.console`, which `pocketmq console` starts
    app         the ASGI application: routes, and what starts and stops with it
    users       the file of users (salted scrypt hashes), sessions, and login attempts
    snapshot    the state of the cluster, refreshed by one collector
    group_progress     how groups without members move: progress of Spark queries
    site        what all pages share; what a page and an action are
    endpoints   from a request to a page or an action and back
    pages/      one module for each page
    rendering   templates and escaping
    bodies      message bodies as text, JSON or hex
    charts      charts as inline SVG
"""
