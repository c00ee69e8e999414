"""Exit codes, logs and signal handling that worker, gateway and command line share."""
