"""One script per claim. Each prints a table, and one line of JSON last."""
