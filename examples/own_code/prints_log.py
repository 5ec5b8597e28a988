"""Training code that prints a log and does not use Sizewright. The computation is a placeholder for real training."""

import sys
import time

import numpy as np

batch, steps, rng = int(sys.argv[1]), int(sys.argv[2]), np.random.default_rng(0)
weights = rng.random((512, 512), np.float32)
started = time.perf_counter()
for step in range(1, steps + 1):
    rows = rng.random((batch, 512), np.float32)
    for _ in range(3):
        rows = np.tanh(rows @ weights)
    if step % 5 == 0:
        print(f"INFO step {step}/{steps} loss={float(rows.mean()):.4f} seen={step * batch:,} examples", flush=True)
print(f"done: {steps * batch / (time.perf_counter() - started):.0f} samples/s")
