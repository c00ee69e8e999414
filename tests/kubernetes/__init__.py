"""The Helm chart on a real API server of Kubernetes: `make test-chart`. Nodes are absent, so no pod runs."""
