"""The dev stack."""
