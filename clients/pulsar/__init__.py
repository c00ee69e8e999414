"""Pulsar's own metadata: what refers to ledgers, and which bookie cluster a ledger is said to be on."""
