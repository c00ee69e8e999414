"""Migrations of clusters whose links are all encrypted, authenticated and authorized."""
