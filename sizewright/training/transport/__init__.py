"""How the replicas of a session talk to each other."""
