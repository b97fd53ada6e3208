"""Words that both sides of the wire use: values and small pure rules. No I/O, no clock, no bytes of the protocol."""
