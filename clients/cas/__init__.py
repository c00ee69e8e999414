"""Compare-and-set on any metadata store: records with versions, claims, and the loop that reads, changes and writes."""
