"""The blue-green cluster migration, as a workflow."""
