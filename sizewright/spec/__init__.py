"""Frozen records for everything that is written down: jobs, allocations, clusters, recommendations, plans."""

from sizewright.spec.allocation import ROLES, Allocation, Gpu, Group, Resources, Role
from sizewright.spec.application import Application
from sizewright.spec.bounds import Bounds, GpuBounds, RoleBounds
from sizewright.spec.cluster import Cluster, HostKind, Quota
from sizewright.spec.cluster_allocation import ClusterAllocation, LeftOut, ResourceUse, Share
from sizewright.spec.command import Command, Progress, Side
from sizewright.spec.diagnosis import Check, Diagnosis
from sizewright.spec.executor import Capabilities, ChangeCost, Executor, Handle, RestoresReplicas, ShowsDifference
from sizewright.spec.job import Checkpoint, Data, Deploy, Job, Objective, Prices, Training
from sizewright.spec.memory import MemoryReport, ServerOption, TableMemory, WorkerOption
from sizewright.spec.metrics import LimitedBy, Metrics, ReplicaLog, ReplicaMetrics
from sizewright.spec.model import CRITEO_KAGGLE_ROWS, Model, Optimizer, Tables
from sizewright.spec.outcome import Change, Failure, Outcome, Status
from sizewright.spec.plan import Plan
from sizewright.spec.prediction import MeasuredThroughput, PredictedAllocation, PredictionAnswer, Sizes
from sizewright.spec.queue import Candidate, Queue, QueuedJob
from sizewright.spec.rails import Rails, RoleRails
from sizewright.spec.reason import Reason
from sizewright.spec.recommendation import (
    Alternative,
    Estimate,
    Evidence,
    Machines,
    Prediction,
    Recommendation,
    Remedy,
    SimilarJob,
)
from sizewright.spec.simulation import (
    JobOutcome,
    SimulatedDecision,
    SimulatedRun,
    SimulationAnswer,
    SimulationRow,
)
from sizewright.spec.table_placement import PlacedServer, TablePart, TablePlacement
from sizewright.spec.torchrec_calibration import CalibrationPlan, TorchrecCalibration

__all__ = [
    "CRITEO_KAGGLE_ROWS",
    "ROLES",
    "Allocation",
    "Alternative",
    "Application",
    "Bounds",
    "CalibrationPlan",
    "Candidate",
    "Capabilities",
    "Change",
    "ChangeCost",
    "Check",
    "Checkpoint",
    "Cluster",
    "ClusterAllocation",
    "Command",
    "Data",
    "Deploy",
    "Diagnosis",
    "Estimate",
    "Evidence",
    "Executor",
    "Failure",
    "Gpu",
    "GpuBounds",
    "Group",
    "Handle",
    "HostKind",
    "Job",
    "JobOutcome",
    "LeftOut",
    "LimitedBy",
    "Machines",
    "MeasuredThroughput",
    "MemoryReport",
    "Metrics",
    "Model",
    "Objective",
    "Optimizer",
    "Outcome",
    "PlacedServer",
    "Plan",
    "PredictedAllocation",
    "Prediction",
    "PredictionAnswer",
    "Prices",
    "Progress",
    "Queue",
    "QueuedJob",
    "Quota",
    "Rails",
    "Reason",
    "Recommendation",
    "Remedy",
    "ReplicaLog",
    "ReplicaMetrics",
    "ResourceUse",
    "Resources",
    "RestoresReplicas",
    "Role",
    "RoleBounds",
    "RoleRails",
    "ServerOption",
    "Share",
    "ShowsDifference",
    "Side",
    "SimilarJob",
    "SimulatedDecision",
    "SimulatedRun",
    "SimulationAnswer",
    "SimulationRow",
    "Sizes",
    "Status",
    "TableMemory",
    "TablePart",
    "TablePlacement",
    "Tables",
    "TorchrecCalibration",
    "Training",
    "WorkerOption",
]
