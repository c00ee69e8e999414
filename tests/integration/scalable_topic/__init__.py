"""Scalable topics (PIP-468, PIP-475)."""
