"""Who may do what: accounts, their file, and the check that both servers make of every request."""
