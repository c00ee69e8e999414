"""What worker, gateway and command line share as processes: exit codes, logs and signals that stop them."""
