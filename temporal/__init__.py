"""Temporal's client, payload converter and search attributes, shared by worker, gateway and command line."""
