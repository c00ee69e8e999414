"""The steps of the migrations: small, idempotent, retried by Temporal."""
