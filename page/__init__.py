"""The page: one migration on one screen, live or as a file."""
