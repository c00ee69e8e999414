"""Proof, in four tiers."""
