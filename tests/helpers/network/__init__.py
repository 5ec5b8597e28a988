"""A test bed: several machines on one host, joined by links of known bandwidth and delay."""
