"""One HTTP call: its URL, headers, credentials, sending, pages and result."""
