"""The real Java client with our servers: it holds its conversations, and prints what it printed with Apache's servers.

conversations.py     what it does, with either header encoding
"""
