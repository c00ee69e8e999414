"""Hooks: deliveries of events, and questions before cut-overs."""
