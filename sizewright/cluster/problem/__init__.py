"""The allocation problem: candidates of jobs, their utilities, and solutions."""
