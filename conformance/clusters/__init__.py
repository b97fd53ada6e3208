"""Servers of both kinds in one cluster, and the real Java client with both at once.

mixed.py    our broker at Apache's name server, beside Apache's broker; Apache's broker at our name server
"""
