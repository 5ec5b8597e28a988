"""Which trials to run, and how to run them."""
