"""Sockets: lines that carry frames a turn at a time, peers that call and serve over them, servers, pools, TLS."""
