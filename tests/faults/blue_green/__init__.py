"""Faults in the blue-green cluster migration."""
