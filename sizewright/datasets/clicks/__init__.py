"""Click logs and synthetic clicks, read as batches of samples."""
