"""Executors that run jobs in sessions of this process, on this host or on a Ray cluster."""
