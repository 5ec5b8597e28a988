"""`sizewright calibrate torchrec` and `sw.calibrate_torchrec`: inputs, output and faults, without TorchRec."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

import sizewright as sw
from sizewright.api import calibrating
from sizewright.errors import InputError
from sizewright.spec import TorchrecCalibration
from tests.cli.conftest import Result
from tests.helpers.torchrec_calibrations import calibration

Call = Callable[..., Result]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> TorchrecCalibration:
    made = calibration()
    monkeypatch.setattr(calibrating, "calibrate", lambda python, *, ranks, plans: made)
    return made


@pytest.mark.usefixtures("measured")
def test_table_shows_estimates_before_and_after_beside_the_measurement(call: Call) -> None:
    result = call("calibrate", "torchrec")
    assert result.code == 0
    assert "6 plans held out of the fit" in result.out
    assert "Median error of the step: 98 % with TorchRec's constants (50 % if" in result.out
    assert "11 % with those of this host" in result.out
    assert "Median error of the storage: 20 % before, 10 % after." in result.out
    assert str(sw.calibrate_torchrec()).splitlines()[0] == result.out.splitlines()[0]


def test_json_is_what_code_reads(call: Call, measured: TorchrecCalibration) -> None:
    shown = json.loads(call("calibrate", "torchrec", "-o", "json").out)
    assert shown["schema"] == "sizewright/torchrec-calibration/v1"
    assert shown["constants"] == measured.constants
    assert len(shown["plans"]) == len(measured.to_frame()) == 12


def test_written_module_has_the_constants(call: Call, measured: TorchrecCalibration, tmp_path: Path) -> None:
    path = tmp_path / "calibrated_planner.py"
    result = call("calibrate", "torchrec", "--write", path)
    assert "returns a calibrated EmbeddingShardingPlanner" in result.err
    source = path.read_text()
    compile(source, path, "exec")
    begin, end = source.index("CONSTANTS: Constants = "), source.index("# CONSTANTS END")
    namespace: dict[str, dict[str, float]] = {}
    exec(source[begin:end].replace(": Constants", ""), namespace)
    assert namespace["CONSTANTS"] == measured.constants


@pytest.mark.usefixtures("measured")
def test_faults_of_options(call: Call, tmp_path: Path) -> None:
    assert "at least 12" in call("calibrate", "torchrec", "--plans", "3").err
    missing = call("calibrate", "torchrec", "--write", tmp_path / "none" / "planner.py")
    assert missing.code == 1
    assert "does not exist" in missing.err
    with pytest.raises(InputError, match="plans must be at least 12, got 3"):
        sw.calibrate_torchrec(plans=3)
    with pytest.raises(InputError, match="ranks must lie between 1 and 64, got 0"):
        sw.calibrate_torchrec(ranks=0)


@pytest.mark.skipif(find_spec("torchrec") is not None, reason="the environment of the tests has torchrec")
def test_an_environment_without_torchrec_is_one_sentence(call: Call) -> None:
    result = call("calibrate", "torchrec")
    assert result.code == 1
    assert "has no module torch" in result.err
    assert "Install TorchRec" in result.err


@pytest.mark.parametrize("program", ["/bin/ls", "/bin/true"])
def test_a_program_that_is_no_python_is_told(call: Call, program: str) -> None:
    result = call("calibrate", "torchrec", "--python", program)
    assert result.code == 1
    assert f"{program} is not a Python with TorchRec: Rank 0 of 1" in " ".join(result.err.split())


def test_a_python_that_does_not_exist_is_named(call: Call) -> None:
    result = call("calibrate", "torchrec", "--python", "/no/such/python")
    assert result.code == 1
    assert "Cannot run /no/such/python" in result.err
