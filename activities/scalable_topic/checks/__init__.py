"""Checks whether topics can become scalable: of the cluster, of one topic, and of its policies."""
