"""Copies of the backlogs of idle subscriptions."""
