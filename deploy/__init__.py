"""The dev stack from package registries, and the deployment for production."""
