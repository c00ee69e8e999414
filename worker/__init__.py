"""The process: settings, connection, registration, metrics and command line."""
