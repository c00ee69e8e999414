"""Reading and changing Pulsar clusters, shared by several migrations."""
