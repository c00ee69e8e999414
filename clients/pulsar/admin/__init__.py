"""The admin interface of Pulsar's brokers; client.py holds the whole, http.py sends, errors.py says what went wrong."""
