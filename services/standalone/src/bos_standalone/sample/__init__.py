"""What the local user has of the sample company: its documents and its mailbox."""
