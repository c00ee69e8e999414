"""Topics that a workflow controls, on brokers of any Pulsar from 4.0 on; messages go through pulsar-client."""
