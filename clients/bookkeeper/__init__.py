"""BookKeeper without its Java client: ledgers' metadata in ZooKeeper, and entries on the bookies."""
