"""Conversations as files for other people and programs, and whole spaces as archives."""
