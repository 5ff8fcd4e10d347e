"""Files agent: a workspace for each user, PDF, spreadsheets, downloads."""
