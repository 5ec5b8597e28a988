"""From trials to a recommendation: a grid of allocations is scored, capped, and one is selected."""
