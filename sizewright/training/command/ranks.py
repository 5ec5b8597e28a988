"""The program that starts the ranks of one worker: several processes of one command, as torchrun does on a node.

    python ranks.py python train.py …

It is started with the variables of its first rank, needs the standard library only, and ends with the first rank that
fails, or when all have succeeded. SIGTERM is for its ranks, which get it from whoever sends it to all processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence

_POLL_S = 0.05
_GRACE_S = 2.0  # in which the other ranks may say what they saw


def run_ranks(words: Sequence[str]) -> int:
    """Start LOCAL_WORLD_SIZE processes, and return their exit code, the first one that is not 0."""
    first = int(os.environ["RANK"])
    ranks = [
        subprocess.Popen(words, env={**os.environ, "RANK": str(first + local), "LOCAL_RANK": str(local)})
        for local in range(int(os.environ["LOCAL_WORLD_SIZE"]))
    ]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # after their start: children inherit that it is ignored
    while True:
        codes = [rank.poll() for rank in ranks]
        if failed := next((code for code in codes if code), 0):
            _end(ranks)
            return failed if failed > 0 else 128 - failed
        if None not in codes:
            return 0
        time.sleep(_POLL_S)


def _end(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """Kill the ranks that do not end by themselves."""
    deadline_s = time.monotonic() + _GRACE_S
    while time.monotonic() < deadline_s and any(rank.poll() is None for rank in ranks):
        time.sleep(_POLL_S)
    for rank in ranks:
        rank.kill()
        rank.wait()


if __name__ == "__main__":
    raise SystemExit(run_ranks(sys.argv[1:]))
