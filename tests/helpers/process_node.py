"""The node of a stand-in for a cluster: it runs pods as processes of this host, under control groups.

It starts the command of a pod's container with its environment, keeps its output as the log, applies the sizes that the
pod has now, and writes how it ended into the pod and its job. Host names of other pods are this host's.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from sizewright.spec.units import read_bytes, read_cores
from sizewright.training.host.cgroups import CgroupTree, find_cgroups
from tests.helpers.stand_in import StandIn

Object = dict[str, Any]
_JOB_LABELS = ("jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name")
_LABEL = re.compile(r"metadata\.labels\['(.+)'\]")
_VARIABLE = re.compile(r"\$\((\w+)\)")
_POLL_S = 0.05


class _Process:
    """The process of one pod."""

    def __init__(self, name: str, pod: Object, tree: CgroupTree, master_port: int) -> None:
        self.pod = pod
        self.group = tree.child(name)
        self.lines: list[tuple[float, str]] = []
        self.resize()
        container = pod["spec"]["containers"][0]
        environment = _environment(container, pod, master_port)
        words = [_filled(word, environment) for word in (*container.get("command", ()), *container.get("args", ()))]
        self.popen = subprocess.Popen(
            self.group.joining(words),
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        for line in self.popen.stdout:
            self.lines.append((time.time(), line.rstrip("\n")))

    def resize(self) -> None:
        """Give the process the sizes that its pod has now."""
        resources = self.pod["spec"]["containers"][0]["resources"]
        amounts = {**resources.get("requests", {}), **resources.get("limits", {})}
        self.group.set_cpu(read_cores(amounts["cpu"], "cpu"))
        self.group.set_memory(read_bytes(amounts["memory"], "memory") if "memory" in amounts else None)

    def end(self) -> None:
        if self.popen.poll() is None:
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        self._reader.join(5.0)
        self.group.remove(grace_s=0.0)

    def ran_out_of_memory(self) -> bool:
        file = "memory.oom_control" if self.group.version == 1 else "memory.events"
        text = (self.group.folders["memory"] / file).read_text()
        return bool(re.search(r"oom_kill [1-9]", text))


class ProcessNode:
    """Runs the pods of a stand-in until it is closed."""

    def __init__(self, server: StandIn) -> None:
        tree = find_cgroups(f"szwtest-{os.getpid()}-node")
        if tree is None:
            pytest.skip("this host does not let tests create control groups")
        self._server, self._tree = server, tree
        self._processes: dict[str, _Process] = {}
        self._ports: dict[str, int] = {}
        self._closed = threading.Event()
        server.resizes = True
        server.log = self._log  # type: ignore[method-assign]
        server.settle = self._settle  # type: ignore[method-assign]
        server.usages = list  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all processes."""
        self._closed.set()
        self._thread.join(30.0)
        for process in self._processes.values():
            process.end()
        self._tree.remove(grace_s=0.0)

    def _run(self) -> None:
        while not self._closed.wait(_POLL_S):
            with self._server.lock:
                pods = {str(pod["metadata"]["uid"]): (name, pod) for name, pod in self._server.pods.items()}
                for uid in self._processes.keys() - pods.keys():
                    self._processes.pop(uid).end()
                for uid, (name, pod) in pods.items():
                    if uid not in self._processes:
                        port = self._ports.setdefault(_job_of(pod), _free_port())
                        self._processes[uid] = _Process(f"{name}-{uid[:6]}", pod, self._tree, port)
                    elif self._processes[uid].popen.poll() is not None and pod["status"]["phase"] == "Running":
                        self._ended(self._processes[uid], pod)

    def _ended(self, process: _Process, pod: Object) -> None:
        """Write how a process ended into its pod, and into its job once that has ended."""
        code = process.popen.returncode
        reason = "Completed" if code == 0 else "OOMKilled" if process.ran_out_of_memory() else "Error"
        pod["status"]["phase"] = "Succeeded" if code == 0 else "Failed"
        name = pod["spec"]["containers"][0]["name"]
        pod["status"]["containerStatuses"] = [
            {"name": name, "state": {"terminated": {"reason": reason, "exitCode": code}}}
        ]
        phases = {each["status"]["phase"] for each in self._server.pods.values() if _job_of(each) == _job_of(pod)}
        if phases == {"Succeeded"} or "Failed" in phases:
            condition = {"type": "Complete" if phases == {"Succeeded"} else "Failed", "status": "True"}
            for (_, _, job_name), job_object in self._server.objects.items():
                if job_name == _job_of(pod) and "spec" in job_object:
                    job_object["status"] = {"conditions": [condition]}

    def _settle(self, pod: Object) -> None:
        StandIn.settle(self._server, pod)
        self._processes[pod["metadata"]["uid"]].resize()

    def _log(self, name: str, timestamps: bool = False) -> str:
        process = self._processes.get(str(self._server.pods[name]["metadata"]["uid"]))
        lines = list(process.lines) if process else []
        if not timestamps:
            return "".join(f"{line}\n" for _, line in lines)
        stamps = (datetime.fromtimestamp(at_s, timezone.utc).isoformat().replace("+00:00", "Z") for at_s, _ in lines)
        return "".join(f"{stamp} {line}\n" for stamp, (_, line) in zip(stamps, lines, strict=True))


@contextmanager
def process_node(server: StandIn) -> Iterator[ProcessNode]:
    node = ProcessNode(server)
    try:
        yield node
    finally:
        node.close()


def _job_of(pod: Object) -> str:
    return next(str(pod["metadata"]["labels"][label]) for label in _JOB_LABELS if label in pod["metadata"]["labels"])


def _environment(container: Object, pod: Object, master_port: int) -> dict[str, str]:
    """Return the environment of a container: fields of the pod and references to other variables are filled in."""
    found = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "HOME": os.environ.get("HOME", "/")}
    found |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    for variable in container.get("env", ()):
        path = variable.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
        label = _LABEL.fullmatch(path)
        value = pod["metadata"]["labels"][label[1]] if label else str(variable.get("value", ""))
        found[variable["name"]] = _filled(value, found)
    hosts = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(master_port)}
    return found | {name: value for name, value in hosts.items() if name in found}


def _filled(text: str, variables: dict[str, str]) -> str:
    return _VARIABLE.sub(lambda match: variables.get(match[1], match[0]), text)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
