"""Records of pull responses to Arrow batches.

Modules in reading order:

    decoding         chooses the path and builds the batches
    records          fixed fields of all records in a buffer, with numpy
    property_table   properties of many messages at once
    compiled         the same through the C twin
"""
