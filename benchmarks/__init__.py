"""Benchmarks: one script per claim. Each script prints a table, and ends with one line of JSON.

`QUICK=1` runs a shorter form. `SMOKE=1` runs the same code over the smallest sizes in seconds, and its
figures mean nothing. Only the results of full runs are kept.
"""
