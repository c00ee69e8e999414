"""Pulsar's binary protocol: connections, lookup and commands, for clients that need more than pulsar-client offers."""
