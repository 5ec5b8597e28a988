"""One script per claim. Each prints a table, and one line of JSON last.

`QUICK=1` runs a shorter form, `SMOKE=1` the shortest: the same code over the smallest sizes, in seconds, whose figures
say nothing. Only full runs are kept.
"""
