"""Files that users name are refused once they exceed their limit, before more of them is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import sizewright as sw
from sizewright.datasets.files.json_lines import JsonLines
from sizewright.errors import InputError, JobError, StoreError
from sizewright.spec import Cluster, Job, Outcome, Plan, Queue, Rails
from sizewright.spec._text_files import TooLongFileError, read_file

READ_ALL = """
import json, resource, sys
from pathlib import Path
import sizewright as sw
from sizewright.cluster.simulator.measured_curves import read_curves
from sizewright.datasets.files.json_lines import JsonLines
from sizewright.datasets.trial_bank.files import CARD, load_bank
from sizewright.errors import SizewrightError
from sizewright.executors import get_executor
from sizewright.executors.kubernetes.yaml_text import YamlText
from sizewright.profiler.series.bank_series import HOST, _check_folder
from sizewright.spec import Cluster, Job, Outcome, Plan, Queue, Rails

file, folder = Path(sys.argv[1]), Path(sys.argv[2])
for name in (CARD, HOST):
    (folder / name).symlink_to(file)
readers = {
    "job": Job.load, "cluster": Cluster.load, "queue": Queue.load, "rails": Rails.load, "plan": Plan.load,
    "curves": read_curves, "prior": sw.load_prior, "card": lambda _: load_bank(folder),
    "host": lambda _: _check_folder(folder, True), "log": lambda path: JsonLines(path, Outcome, "outcomes").read(),
    "manifest": YamlText.load, "script": get_executor("slurm").adopt,
    "applied": lambda path: sw.apply(path, executor="slurm"),
}
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[3]),) * 2)
messages = {}
for name, read in readers.items():
    try:
        read(file)
        messages[name] = "was read"
    except SizewrightError as error:
        messages[name] = str(error)
    except BaseException as error:
        messages[name] = repr(error)
print(json.dumps(messages))
"""
MEMORY_BYTES = 2_500_000_000


@pytest.mark.parametrize("kind", ["large", "endless"])
def test_every_reader_refuses_a_file_that_exceeds_its_limit(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "file.yaml"
    if kind == "large":
        file.touch()
        os.truncate(file, 3 << 30)
    else:
        file.symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    args = [sys.executable, "-c", READ_ALL, str(file), str(tmp_path / "folder"), str(MEMORY_BYTES)]
    done = subprocess.run(args, capture_output=True, text=True, check=True)
    messages = json.loads(done.stdout)
    assert {name: text for name, text in messages.items() if "longer than" not in text} == {}


@pytest.mark.parametrize("load", [Job.load, Cluster.load, Queue.load, Rails.load, Plan.load])
def test_longer_file_is_refused_with_the_sentence_for_long_texts(
    load: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "file.yaml"
    path.write_bytes(b"\n" * ((4 << 20) + 1))
    with pytest.raises(JobError) as caught:
        load(path)
    assert str(caught.value) == f"{path}: it is longer than 4 MiB. Pass only the part that is needed."


def test_file_of_exactly_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_bytes(b"name: ctr\n".ljust(4 << 20, b"\n"))
    assert Job.load(path).name == "ctr"
    assert len(read_file(path, 4)) == 4 << 20
    with pytest.raises(TooLongFileError, match="longer than 3 MiB"):
        read_file(path, 3)


@pytest.mark.parametrize(("size", "fits"), [(100_000, True), (5 << 20, False)])
def test_job_is_read_from_a_pipe_within_the_limit(size: int, fits: bool) -> None:
    reader, writer = os.pipe()

    def write() -> None:
        with suppress(BrokenPipeError), open(writer, "wb", buffering=0) as pipe:
            pipe.write(b"name: ctr\n".ljust(size, b"\n"))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        if fits:
            assert Job.load(f"/dev/fd/{reader}").name == "ctr"
        else:
            with pytest.raises(InputError, match="longer than 4 MiB"):
                Job.load(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
        thread.join()


def test_folder_is_refused_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JobError, match=r"Cannot read the job file .*: Is a directory\. Check the path"):
        Job.load(tmp_path)
    with pytest.raises(StoreError, match=r"Cannot read the prior .*Is a directory"):
        sw.load_prior(tmp_path)


def test_log_with_short_lines_is_read_and_an_endless_line_refused(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "log.jsonl", Outcome, "outcomes")
    lines.append(Outcome(status="finished"))
    with open(lines.path, "ab") as file:
        file.write(b"cut off\r\n")
    lines.append(Outcome(status="finished"))
    assert (len(lines.read()), lines.passed_over) == (2, 1)
    os.truncate(lines.path, 5 << 20)
    with pytest.raises(StoreError, match=r"a line is longer than 4(\.0)? MiB"):
        lines.read()
