"""One file per executor: carrying out plans, and rendering them as manifests."""

from sizewright.executors.registry import executor_names, get_executor

__all__ = ["executor_names", "get_executor"]
