"""What tests of whole migrations share: a worker's process, traffic, independent readers of stores, the operator."""
