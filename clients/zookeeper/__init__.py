"""ZooKeeper: bulk reading and writing, a feed of changes, and coordination."""
