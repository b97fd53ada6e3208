"""Who is let in: signed requests, wrong signatures and TLS, with Apache's servers and with ours, by both clients.

signatures.py       requests that are signed, wrongly signed and not signed at all
encrypted_lines.py  TLS, with a certificate that the client checks
"""
