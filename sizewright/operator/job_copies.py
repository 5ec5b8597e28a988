"""Copies of jobs that are deleted and created again, in Secrets of the operator's own namespace.

An operator that is killed in between leaves the copy, from which the next turn creates the job.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sizewright.executors.kubernetes.api import KubeApi

_LABEL = "sizewright/copy-of-a-job"
_KEY = "object.json"


class JobCopies:
    """Keeps copies in a namespace; without one, none are kept."""

    def __init__(self, api: KubeApi, namespace: str | None) -> None:
        self._api = api
        self._namespace = namespace

    @contextmanager
    def kept(self, uid: str, document: Mapping[str, Any]) -> Iterator[None]:
        """Keep what the job `uid` is to be created from, until there is a job of its name again."""
        if self._namespace is None:
            yield
            return
        name = f"sizewright-{uid}"
        metadata = {"name": name, "namespace": self._namespace, "labels": {_LABEL: "yes"}}
        data = {_KEY: base64.b64encode(json.dumps(document).encode()).decode()}
        self._api.create({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        try:
            yield
        finally:
            if self._exists(document):
                self._api.delete("v1", "Secret", self._namespace, name)

    def restore(self) -> list[dict[str, Any]]:
        """Create the jobs that are gone from their copies, remove the copies, and return those jobs."""
        if self._namespace is None:
            return []
        restored = []
        for copy in self._api.list("v1", "Secret", self._namespace, _LABEL):
            document = json.loads(base64.b64decode(copy["data"][_KEY]))
            if not self._exists(document):
                restored.append(self._api.apply(document))
            self._api.delete("v1", "Secret", self._namespace, copy["metadata"]["name"])
        return restored

    def _exists(self, document: Mapping[str, Any]) -> bool:
        meta = document["metadata"]
        return self._api.get(document["apiVersion"], document["kind"], meta["namespace"], meta["name"]) is not None
