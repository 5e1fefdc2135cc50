"""The protocol's data: identifiers, encodings, keys, schemas. Pure: no I/O but reading schemas."""
