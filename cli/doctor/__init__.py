"""Checks of everything that a worker, and a migration, will talk to; nothing is written anywhere."""
