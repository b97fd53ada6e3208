"""The pages of the console, one module each: what it shows, and what can be done on it. `PAGES` and `ACTIONS` say at which paths."""
