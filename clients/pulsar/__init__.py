"""Pulsar's own metadata: the references to ledgers, and the bookie cluster that a ledger is attributed to."""
