"""Place embedding tables as wholes, or in parts by rows, on parameter servers or ranks."""
