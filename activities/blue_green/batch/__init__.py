"""The phases of one batch of namespaces; none imports another."""
