"""Read-only checks of everything that a worker, or a migration, connects to."""
