"""Inputs of users, states of workflows, and records of stores; nothing here does input or output."""
