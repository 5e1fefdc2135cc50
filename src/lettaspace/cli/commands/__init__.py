"""One command a module, each imported when it runs."""
