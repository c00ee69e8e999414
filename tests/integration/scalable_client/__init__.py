"""Tests of the client for scalable topics, on real brokers."""
