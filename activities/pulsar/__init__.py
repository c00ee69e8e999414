"""Reading and changing Pulsar clusters, as several migrations need it."""
