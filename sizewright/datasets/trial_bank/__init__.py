"""The bank: trials of many job shapes, measured by the profiler, from which a prior is learned."""
