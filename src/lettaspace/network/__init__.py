"""Who a DID is and what others name, fetched so that it leads nowhere inside."""
