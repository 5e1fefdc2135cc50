"""The real Letta Code, driven offline against a fake model provider."""
