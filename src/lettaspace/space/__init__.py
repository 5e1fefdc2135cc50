"""Permissioned repos in a database: records, oplog, set hash, blobs, identity."""
