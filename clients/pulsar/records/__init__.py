"""Records that Pulsar keeps in its metadata store and the project reads or writes."""
