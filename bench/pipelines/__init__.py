"""Ready pipelines at scale: messages a second, CPU and memory, on this machine, with the broker beside."""
