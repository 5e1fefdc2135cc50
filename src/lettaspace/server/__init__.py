"""The host: permissioned repos and spaces, served over XRPC."""
