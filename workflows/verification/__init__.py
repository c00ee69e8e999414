"""The workflow that compares both sides of a migration again."""
