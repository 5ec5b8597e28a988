"""The host: its cores, memory and control groups."""
