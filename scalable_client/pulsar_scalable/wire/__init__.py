"""Pulsar's binary protocol on the standard library alone (PulsarApi.proto of 5.0.1)."""
