"""Views of migrations, as Temporal and workers answer; the command line and the page show them."""
