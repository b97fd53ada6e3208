"""What servers tell of themselves: numbers for Prometheus, and lines of the log (`log_lines`).

What the numbers are (`families`), as text (`text`), and on a page that is asked for (`page`):

    parts of a server ── looked at when somebody asks ──► families ──► text ──► GET /metrics

Nothing here is on the way of a message: what is counted there are plain additions, and the rest is done when the page is
asked for.
"""
