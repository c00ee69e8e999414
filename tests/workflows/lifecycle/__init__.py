"""Workflow tests of the parts that all migrations share."""
