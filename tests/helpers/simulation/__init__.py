"""Deterministic simulation: the engine's real code runs on simulated threads, clocks, connections and actors."""
