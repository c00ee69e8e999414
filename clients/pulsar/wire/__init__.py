"""Pulsar's binary protocol, as far as stored messages are read, sent again as they are, and acknowledged."""
