"""Models of the verification of a migration, by request and at any time."""
