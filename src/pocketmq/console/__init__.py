"""The web console: pages about a running cluster. It uses the same admin requests as `mqadmin`, so it works with any RocketMQ.

    browser ── GET ──► guard ── page ──► snapshot   one collector queries the cluster every few seconds, for all pages
                                    └──► cache      other queries of a page, cached for a moment for all users
            ◄─ server-sent events ── the live part of the page, rendered once for all browsers
            ── POST ─► guard: session, CSRF token, permission to change something ──► admin

It needs the extra `console`. `pocketmq console` and `pocketmq serve --console` start it in a process of its own.

Modules in reading order:

    settings        settings of the console, with their checks
    command         `python -m pocketmq.console`, which `pocketmq console` starts
    app             the ASGI application: routes, headers, start and stop
    users           the users file (salted scrypt hashes), sessions and login attempts
    snapshot        the state of the cluster, refreshed by one collector
    group_progress  progress of groups without members, such as Spark queries
    site            the parts that all pages use; pages and actions
    endpoints       HTTP requests to pages and actions
    pages/          one module for each section of the menu
    rendering       templates, filters and tables
    bodies          message bodies as text, JSON or hex
"""
