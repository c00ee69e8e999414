"""Helpers of the gateway's tests."""
