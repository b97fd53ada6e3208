"""RocketMQ's remoting protocol, pure: bytes to values and back. No socket, no clock, no await.

Modules in reading order:

    frames             splits a byte stream into frames
    command            a command: one request or response, whatever its header encoding
    header_encodings   the JSON header, and the binary header, called ROCKETMQ
    fields             ext fields as typed headers
    hot_headers        fast decoding of send, pull and offset requests
    api/               the headers of all requests and responses
    java_json          bodies as JSON in Java's dialect, typed
    java_json_reader   a reader for JSON as Java's libraries write it
    bodies/            the bodies of all requests and responses
    pending_calls      pending calls of one connection: match responses, expire calls
    signing            ACL signatures
    record             the stored message, in the commit log and in pull responses
    batch              the body of a batch send
    body_pack          bodies without their records, for a pull that needs nothing else
    compression        zlib, LZ4 and zstd
    pop                receipt handles, offset texts, check points and acks of POP
    trace_text         records of the trace topic
"""
