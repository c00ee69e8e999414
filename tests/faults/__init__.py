"""Faults: whatever is killed, frozen or cut off at any moment, a migration ends, and never in between."""
