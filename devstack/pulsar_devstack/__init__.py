"""Real servers on one machine, from package registries alone."""
