"""Tests of verifications by request that need no server."""
