"""The step that compares both sides of a migration again."""
