"""Who may use what, and who may answer whom."""
