"""The control loop of a running job: observe, refit, stabilize, scale."""
