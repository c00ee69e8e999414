"""What namespaces have on both clusters, and what green gets of it."""
