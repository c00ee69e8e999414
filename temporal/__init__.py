"""What worker, gateway and command line share of Temporal: its client, payload converter and search attributes."""
