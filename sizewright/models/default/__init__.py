"""The default throughput model: a curve, its residual, and its parts."""
