"""Tests of the page and its metrics."""
