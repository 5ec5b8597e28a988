"""A calibration of TorchRec's planner: its constants on one host, and its estimates beside measured steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import ConfigDict, Field

from sizewright.spec._answer import Answer
from sizewright.spec._base import Record
from sizewright.spec._frames import frame

if TYPE_CHECKING:
    import pandas as pd


class CalibrationPlan(Record):
    """A sharding plan: what the planner estimates of it before and after the calibration, and what was measured."""

    plan: int
    kind: str = Field(description="sharding type of its tables, `mixed` for several")
    table_set: int = Field(description="number of the set of tables")
    tables: int
    batch_size: int = Field(description="samples of each rank")
    ranks: int = Field(description="processes, each with one thread")
    held_out: bool = Field(description="no plan of its set of tables entered the fit")
    default_ms: float = Field(description="step of the tables that TorchRec's own constants estimate")
    calibrated_ms: float = Field(description="step of the tables that the fitted constants estimate")
    measured_ms: float
    default_storage_bytes: int = Field(description="storage of the fullest rank that TorchRec's own planner counts")
    calibrated_storage_bytes: int
    measured_peak_bytes: int = Field(description="resident memory that tables and steps add to the fullest rank")


class TorchrecCalibration(Answer):
    """Constants of TorchRec's planner that were fitted on one host. Errors are medians over the held-out plans."""

    model_config = ConfigDict(frozen=True, extra="forbid", serialize_by_alias=True, populate_by_name=True)

    schema_: Literal["sizewright/torchrec-calibration/v1"] = Field(
        default="sizewright/torchrec-calibration/v1", alias="schema"
    )
    versions: dict[str, str] = Field(description="of torch and torchrec")
    ranks: int = Field(description="processes of most plans; the others have one")
    constants: dict[str, float] = Field(description="as the planner file has them: ms, bytes/ms and factors")
    default_error: float = Field(description="relative error of the step that TorchRec's own constants estimate")
    rescaled_error: float = Field(description="the same, after all its estimates are multiplied by one fitted factor")
    calibrated_error: float = Field(description="relative error of the step that the fitted constants estimate")
    default_storage_error: float = Field(description="relative error of the storage that TorchRec's own planner counts")
    calibrated_storage_error: float = Field(description="relative error of the storage with the fitted factors")
    default_order: float = Field(description="share of held-out pairs of plans of the same tables in the right order")
    calibrated_order: float = Field(description="the same share, by the calibrated estimates")
    plans: tuple[CalibrationPlan, ...]

    def to_frame(self) -> pd.DataFrame:
        """Return one row per plan."""
        return frame(plan.model_dump() for plan in self.plans)
