"""Memory models: bytes that a parameter server or a worker needs."""
