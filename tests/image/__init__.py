"""The container image: built in a sealed network, and run as the manifest for Kubernetes says."""
