"""Executors that write and apply Kubernetes manifests."""
