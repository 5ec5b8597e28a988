"""The base of executors that can do some things only."""

from __future__ import annotations

from sizewright.executors.registry import unsupported
from sizewright.spec import Capabilities, Handle, Metrics, Outcome, Plan


class Refuses:
    """Refuses all but what is added to it, each by an UnsupportedError that names executors which can."""

    name: str
    capabilities: Capabilities

    def launch(self, plan: Plan) -> Handle:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "launch")

    def adjust(self, handle: Handle, plan: Plan) -> None:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "adjust")

    def observe(self, handle: Handle) -> Metrics:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "observe")

    def wait(self, handle: Handle, timeout_s: float) -> bool:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "observe")

    def stop(self, handle: Handle) -> Outcome:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "stop")

    def render(self, plan: Plan) -> str:
        """Raises UnsupportedError."""
        raise unsupported(self.name, "render")
