"""What is asked of both clusters and of namespaces, in PRECHECK and again before each batch."""
