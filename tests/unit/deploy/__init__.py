"""Deployment: the Helm chart and its manifests, the values for the chart of Pulsar, and the compose file."""
