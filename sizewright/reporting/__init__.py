"""The report: one HTML file that shows what a recommendation rests on and what became of it."""
