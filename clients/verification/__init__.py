"""Readers of stores and bookies for verifications: read only, and without any code that copies."""
