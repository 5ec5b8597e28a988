"""The report: one HTML file with the evidence of a recommendation and the outcome of its runs."""
