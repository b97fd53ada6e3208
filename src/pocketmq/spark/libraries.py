"""The door to numpy and pyarrow: an extra, so that the rest of PocketMQ does not need them.

Whoever works on columns imports them from here. Where one is missing, the error says what to install, on this machine and on
every executor.
"""

from pocketmq.spark.needed_libraries import missing

try:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError as error:
    raise missing(error.name) from None

__all__ = ["np", "pa", "pc"]
