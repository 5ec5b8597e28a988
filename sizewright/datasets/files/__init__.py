"""Files and databases of every kind: opened, checked, and written whole."""
