"""The HTTP interface: paths, who may use them, and how refusals are told."""
