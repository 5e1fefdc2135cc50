"""AI agents' conversations in a permissioned space on the AT Protocol."""

__version__ = "0.1.0"
