"""Calibrate the planner of TorchRec: measure steps of sharding plans on this host, and fit its constants to them."""
