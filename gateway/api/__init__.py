"""The HTTP interface: paths, who may use them, and the bodies of refusals."""
