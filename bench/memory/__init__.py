"""How much memory a worker takes for very large clusters: `make bench-memory`."""
