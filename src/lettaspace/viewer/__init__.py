"""The web viewer: pages over a space, for whoever holds its address."""
