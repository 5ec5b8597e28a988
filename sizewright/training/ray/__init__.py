"""Ray: how it is started, where replicas are placed, and how they are called."""
