"""Push the progress of a TrainJob into its status (`status.trainerStatus`, KEP-2779 of Kubeflow Trainer).

Trainer gives the pods of a TrainJob the address of its status server, the certificate of the CA, and a token.
`log_samples` loads this module only where the address is set; the module needs only the standard library.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_CA_CERT, _TOKEN = "KUBEFLOW_TRAINER_SERVER_CA_CERT", "KUBEFLOW_TRAINER_SERVER_TOKEN"
SAMPLES = "samples"
"""The name of the metric with the job's samples."""
_EVERY_S = 5.0
"""The seconds between two pushes, as Trainer asks of its clients."""
_TIMEOUT_S = 5.0
_MAX_SECONDS = 2**31 - 1
"""The status has 32 bits for the remaining time."""


class TrainerStatus:
    """The progress of a job, as the process of rank 0 estimates it; a daemon thread pushes it every 5 s.

    The samples of the job are the process's own times the number of workers (`WORLD_SIZE`, else `SIZEWRIGHT_WORKERS`).
    This is exact for synchronous data parallel training, in which all workers take equal batches, and an estimate for
    any other. Percentage and remaining time need the job's number of samples, which Sizewright's manifests give
    containers that run a command (`SIZEWRIGHT_SAMPLES`). A process that resumes from a checkpoint starts from 0.

    No push slows or stops the training. The first failure is reported on standard error, later ones are not. A process
    forked from this one pushes nothing.
    """

    def __init__(
        self,
        url: str,
        env: Mapping[str, str],
        *,
        every_s: float = _EVERY_S,
        timeout_s: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._url, self._env = url, env
        self._every_s, self._timeout_s, self._clock = every_s, timeout_s, clock
        self._workers = _number(env.get("WORLD_SIZE")) or _number(env.get("SIZEWRIGHT_WORKERS")) or 1
        self._total = _number(env.get("SIZEWRIGHT_SAMPLES"))
        self._lock = threading.Lock()
        self._pushing_pid = os.getpid() if _is_first_worker(env) else 0
        self._thread: threading.Thread | None = None
        self._samples = self._first_samples = 0
        self._first_s = self._last_s = 0.0

    def add(self, samples: int) -> None:
        """Count samples of this process, and see to it that the thread runs."""
        if os.getpid() != self._pushing_pid:
            return
        with self._lock:
            self._last_s = self._clock()
            self._samples += samples
            if self._thread is None:
                self._first_s, self._first_samples = self._last_s, self._samples
                self._thread = threading.Thread(target=self._push_repeatedly, name="sizewright-status", daemon=True)
                with contextlib.suppress(RuntimeError):  # the system has no more threads: the job trains on without
                    self._thread.start()

    def status(self) -> dict[str, Any]:
        """Return the body of a push: `{"trainerStatus": {...}}`."""
        with self._lock:
            samples, passed_s = self._samples * self._workers, self._last_s - self._first_s
            rate = (self._samples - self._first_samples) * self._workers / passed_s if passed_s > 0 else 0.0
        values = {SAMPLES: str(samples)}
        status: dict[str, Any] = {}
        if rate > 0:
            values["samples_per_s"] = f"{rate:.6g}"
        if self._total:
            status["progressPercentage"] = min(100, 100 * samples // self._total)
            if rate > 0:
                remaining_s = max(0, self._total - samples) / rate
                status["estimatedRemainingSeconds"] = int(min(remaining_s, _MAX_SECONDS))
        status["metrics"] = [{"name": name, "value": value} for name, value in values.items()]
        status["lastUpdatedTime"] = datetime.now(timezone.utc).isoformat(timespec="seconds").replace("+00:00", "Z")
        return {"trainerStatus": status}

    def _push_repeatedly(self) -> None:
        has_failed = False
        pushed_samples = -1
        while True:
            if pushed_samples != (pushed_samples := self._samples):
                try:
                    self._push()
                except Exception as error:  # whatever fails here must not stop the training
                    if not has_failed:
                        _report(error)
                    has_failed = True
            time.sleep(self._every_s)

    def _push(self) -> None:
        """Push the status once. Raises OSError or HTTPException if the server does not accept it, ValueError else."""
        parts = urlsplit(self._url)
        if parts.scheme != "https" or not parts.hostname:  # the token would be readable on the way
            raise ValueError("the address of the status server is no https URL")
        import http.client  # imported by the thread, which need not be quick and may fail
        import ssl

        # The CA and the token are read anew each time, since both are rotated.
        context = ssl.create_default_context(cafile=self._env.get(_CA_CERT) or None)
        headers = {"Authorization": f"Bearer {_token(self._env.get(_TOKEN, ''))}", "Content-Type": "application/json"}
        # No library that follows redirects or proxies, which could send the token elsewhere.
        connection = http.client.HTTPSConnection(parts.hostname, parts.port, timeout=self._timeout_s, context=context)
        try:
            path = f"{parts.path or '/'}{'?' if parts.query else ''}{parts.query}"
            connection.request("POST", path, json.dumps(self.status()), headers)
            status = connection.getresponse().status
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise OSError(f"the status server answered {status}")


def _is_first_worker(env: Mapping[str, str]) -> bool:
    """Return whether this process has rank 0, by torchrun's variable, else by the number of the pod."""
    if env.get("SIZEWRIGHT_ROLE", "worker") != "worker":
        return False
    numbers = (env.get(name) for name in ("RANK", "SIZEWRIGHT_INDEX", "JOB_COMPLETION_INDEX"))
    return next((number for number in numbers if number), "0").strip() == "0"


def _token(path: str) -> str:
    token = Path(path).read_text(encoding="ascii").strip()
    if not token or not token.isprintable():  # an error of the client library would show it
        raise ValueError("its file has no token")
    return token


def _number(text: str | None) -> int:
    """Return a whole number above 0; 0 for any other text."""
    text = (text or "").strip()
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _report(error: Exception) -> None:
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    line = f"sizewright: the progress cannot be pushed to the TrainJob ({reason}). The training goes on.\n"
    with contextlib.suppress(OSError):
        os.write(2, line.encode(errors="replace"))
