"""Click logs, the trial table and its store."""
