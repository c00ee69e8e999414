"""Orchestration only, deterministic: phases, gates, timers and the operator's verbs."""
