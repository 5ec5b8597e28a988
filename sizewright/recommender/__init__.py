"""From trials to a recommended allocation."""
