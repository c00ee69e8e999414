"""The gateway, before controllers whose steps are doubled."""
