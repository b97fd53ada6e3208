"""What an administrator can ask and do, by family: cluster, topics, groups, offsets, messages, dead letters and so on; see `client.admin`."""
