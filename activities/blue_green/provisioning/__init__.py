"""Comparison of the namespaces of both clusters, and creation on green of what it lacks."""
