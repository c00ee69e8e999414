"""Tests of the client for scalable topics, without servers."""
