"""The replicas of a session: who they are, how they change, and how they recover."""
