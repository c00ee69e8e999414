"""Traffic whose clients are sent from one cluster to another, with Python and Java clients side by side."""
