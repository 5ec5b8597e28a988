"""Parameter servers: rows and dense weights, how they are updated, moved and kept in snapshots."""
