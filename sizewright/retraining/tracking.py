"""One retraining as an MLflow run: parameters, metrics, figures, and the model with signature and example.

All calls use a separate client, so the MLflow run and tracking URI of a pipeline stay unchanged.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from sizewright.errors import RegistryError
from sizewright.models.prior import LearnedPrior
from sizewright.retraining.estimator import COLUMNS, TRUSTED, PriorRegressor
from sizewright.retraining.figures import draw
from sizewright.retraining.learning import Learned
from sizewright.retraining.lessons import Lessons
from sizewright.retraining.registry import FOLDER, PRIOR, TWIN, Registry

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

EXPERIMENT = "sizewright"
_MODEL = "model"
_REQUIRED = ("sizewright", "scikit-learn", "skops", "pandas", "numpy")


def log_run(registry: Registry, learned: Learned, parameters: Mapping[str, Any]) -> str:
    """Write the run and return its id. Raises RegistryError where the server refuses it."""
    with registry.guard():
        client = registry.client
        run_id = str(client.create_run(_experiment(client, registry.uri), run_name="retrain").info.run_id)
        try:
            _write(client, run_id, learned, parameters)
        except BaseException:
            client.set_terminated(run_id, "FAILED")
            raise
        client.set_terminated(run_id)
    return run_id


def check_experiment(registry: Registry) -> None:
    """Raise RegistryError if the experiment was deleted, so that runs cannot be logged."""
    with registry.guard():
        experiment = registry.client.get_experiment_by_name(EXPERIMENT)
    if experiment is not None and experiment.lifecycle_stage == "deleted":
        raise RegistryError(
            f"The experiment {EXPERIMENT!r} at {registry.name} was deleted.",
            f"Run: MLFLOW_TRACKING_URI={registry.name} mlflow experiments restore -x {experiment.experiment_id}",
        )


def model_source(run_id: str) -> str:
    """Return the URI of the model of a run, for the registry."""
    return f"runs:/{run_id}/{_MODEL}"


def _write(client: MlflowClient, run_id: str, learned: Learned, parameters: Mapping[str, Any]) -> None:
    from mlflow.entities import Metric, Param

    now = int(time.time() * 1000)
    client.log_batch(
        run_id,
        metrics=[Metric(name, value, now, 0) for name, value in learned.metrics().items()],
        params=[Param(name, str(value)) for name, value in parameters.items()],
    )
    left_out = {"passed_over": learned.lessons.passed_over, "flagged": list(learned.prior.flagged)}
    client.log_dict(run_id, left_out, "left_out.json")
    for name, figure in draw(learned.scores).items():
        client.log_figure(run_id, figure, f"figures/{name}.png")
    with tempfile.TemporaryDirectory() as folder:
        for name, each in ((PRIOR, learned.prior), (TWIN, learned.twin)):
            Path(folder, name).write_text(each.to_json(), encoding="utf-8")
        client.log_artifacts(run_id, folder, FOLDER)
    with tempfile.TemporaryDirectory() as folder:
        _save_model(Path(folder, _MODEL), learned.lessons, learned.prior)
        client.log_artifacts(run_id, str(Path(folder, _MODEL)), _MODEL)


def _save_model(path: Path, lessons: Lessons, prior: LearnedPrior) -> None:
    import mlflow.sklearn
    from mlflow.models import infer_signature

    model = PriorRegressor(prior.to_json())
    rows = example(lessons)
    mlflow.sklearn.save_model(
        model,
        str(path),
        signature=infer_signature(rows, model.predict(rows)),
        input_example=rows,
        serialization_format="skops",
        skops_trusted_types=list(TRUSTED),
        pip_requirements=[f"{name}=={version(name)}" for name in _REQUIRED],
    )


def example(lessons: Lessons) -> pd.DataFrame:
    """Return some rows that the model can predict."""
    key, bank_job = next(iter(lessons.jobs.items()))
    rows = [t.model_dump(include=set(COLUMNS)) for t in lessons.trials if t.job_hash == key][:3]
    description = json.dumps(bank_job.job.model_dump(mode="json", by_alias=True))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(float).assign(job=description)


def _experiment(client: MlflowClient, uri: str) -> str:
    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is not None:
        return str(experiment.experiment_id)
    location = None
    if uri.startswith("sqlite:///"):  # by default artifacts would lie in the current folder
        location = str(Path(uri.removeprefix("sqlite:///")).resolve().parent / "mlflow-artifacts")
    return str(client.create_experiment(EXPERIMENT, artifact_location=location))
