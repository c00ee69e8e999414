"""Start real servers on one machine: programs, configuration, processes and stacks of them."""
