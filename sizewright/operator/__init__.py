"""An operator on Kubernetes that sizes suspended jobs before they start."""
