"""The engine under a seeded scheduler: its threads, clocks, connections and actors are simulated, its code is not."""
