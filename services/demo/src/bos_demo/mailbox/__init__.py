"""The sample mailbox: its mails, and the IMAP and SMTP servers on loopback that offer it."""
