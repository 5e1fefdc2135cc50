"""The client of hosts: signing in, one repo on its host, and keeping a store equal to it."""
