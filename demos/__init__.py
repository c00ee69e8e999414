"""Demonstrations: a whole migration of a live cluster on this machine, verified."""
