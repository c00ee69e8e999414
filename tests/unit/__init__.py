"""Arithmetic, codecs, planners and state walks; no server."""
