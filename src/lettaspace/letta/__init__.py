"""Letta Code's storage directory: into a space, and as texts out of it."""
