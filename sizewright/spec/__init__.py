"""Frozen records for everything that is written down: jobs, allocations, clusters, recommendations, plans."""

from sizewright.spec.allocation import ROLES, Allocation, Gpu, Group, Resources, Role
from sizewright.spec.bounds import Bounds, RoleBounds
from sizewright.spec.cluster import Cluster, HostKind, Quota
from sizewright.spec.job import Data, Deploy, Job, Objective, Prices, Training
from sizewright.spec.memory import MemoryReport, ServerOption, TableMemory
from sizewright.spec.metrics import LimitedBy, Metrics, ReplicaMetrics
from sizewright.spec.model import CRITEO_KAGGLE_ROWS, Model, Optimizer, Tables
from sizewright.spec.plan import Executor, Plan
from sizewright.spec.recommendation import (
    Alternative,
    Estimate,
    Evidence,
    Prediction,
    Recommendation,
    Remedy,
)

__all__ = [
    "CRITEO_KAGGLE_ROWS",
    "ROLES",
    "Allocation",
    "Alternative",
    "Bounds",
    "Cluster",
    "Data",
    "Deploy",
    "Estimate",
    "Evidence",
    "Executor",
    "Gpu",
    "Group",
    "HostKind",
    "Job",
    "LimitedBy",
    "MemoryReport",
    "Metrics",
    "Model",
    "Objective",
    "Optimizer",
    "Plan",
    "Prediction",
    "Prices",
    "Quota",
    "Recommendation",
    "Remedy",
    "ReplicaMetrics",
    "Resources",
    "Role",
    "RoleBounds",
    "ServerOption",
    "TableMemory",
    "Tables",
    "Training",
]
