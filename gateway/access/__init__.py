"""Identities of the senders of requests, and their rights: tokens, JWTs, rights of roles, hosts, rates."""
