"""Waiting times in one Spark session: one job per item with our slots, or one job per run in FAIR pools."""
