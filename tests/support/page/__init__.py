"""Views of migrations for tests of the page."""
