"""Integration tests that concern all migrations."""
