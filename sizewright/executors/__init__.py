"""One file per executor: plans rendered for the platforms that carry them out."""
