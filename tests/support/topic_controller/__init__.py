"""Helpers of tests of the controller of scalable topics."""
