"""pi's session files: into a space, and out of it."""
