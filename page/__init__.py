"""The page: one migration on one screen, live or as a file; and the metrics of all migrations."""
