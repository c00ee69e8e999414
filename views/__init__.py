"""What Temporal and its workers know of migrations; the command line and the page show it."""
