"""Scripts for sbatch: sizes read and written, everything else kept."""

from __future__ import annotations

import pytest

from sizewright.errors import InputError
from sizewright.executors.slurm_script import SlurmScript
from sizewright.executors.slurm_sizes import rounded
from sizewright.spec import Gpu, Group
from sizewright.spec.units import GIB, MIB

BASE = """\
#!/bin/bash -l
# Ours: do not touch the partition.
#SBATCH -J ctr --partition="big nodes"   # one of two
#SBATCH -n 2 -c1                # workers
#SBATCH --mem-per-cpu 1G        # was 512M
#SBATCH hetjob
#SBATCH --ntasks=1              # PS
#SBATCH --cpus-per-task=4 --mem-per-cpu=2048

module load python   # ours
#SBATCH --ntasks=99 is only a comment here
export SIZEWRIGHT_BATCH_SIZE="512"  # told to train.py
srun --het-group=0 python train.py : --het-group=1 python ps.py"""  # and no line break at the end


def test_sizes_are_written_where_they_stand_and_nothing_else_changes() -> None:
    script = SlurmScript(BASE)
    script.write(0, Group(replicas=6, cpu=0.5, memory_bytes=GIB))
    script.write(1, Group(replicas=3, cpu=2, memory_bytes=GIB, gpu=Gpu(kind="a100", count=2)))
    script.set_batch_size(64)
    wanted = (
        BASE.replace("-n 2", "-n 6")
        .replace("--ntasks=1 ", "--ntasks=3 ")
        .replace("--cpus-per-task=4 --mem-per-cpu=2048", "--cpus-per-task=2 --mem-per-cpu=512M")
        .replace("mem-per-cpu=512M\n", "mem-per-cpu=512M\n#SBATCH --gpus-per-task=a100:2\n")
        .replace('"512"', '"64"')
    )
    assert script.text == wanted
    assert SlurmScript(wanted).read(0) == Group(replicas=6, cpu=1, memory_bytes=GIB)
    assert SlurmScript(wanted).read(1) == Group(
        replicas=3, cpu=2, memory_bytes=GIB, gpu=Gpu(kind="a100", count=2)
    )  # fmt: skip
    assert SlurmScript(wanted).batch_size == 64


def test_right_sizes_stay_in_whatever_words() -> None:
    script = SlurmScript(BASE)
    for component in (0, 1):
        script.write(component, script.read(component))
    assert script.text == BASE


def test_what_is_missing_is_added_to_its_component() -> None:
    script = SlurmScript("#!/bin/sh\n#SBATCH hetjob\n#SBATCH -p all\n\ntrue\n")
    for component in (0, 1):
        script.write(component, Group(replicas=component + 1, cpu=1, memory_bytes=0))
    assert script.text == (
        "#!/bin/sh\n#SBATCH --ntasks=1\n#SBATCH --cpus-per-task=1\n#SBATCH hetjob\n#SBATCH -p all\n"
        "#SBATCH --ntasks=2\n#SBATCH --cpus-per-task=1\n\ntrue\n"
    )


@pytest.mark.parametrize(
    ("memory", "read"),
    [("512", 512 * MIB), ("512M", 512 * MIB), ("400m", 400 * MIB), ("8192K", 8 * MIB), ("1GB", GIB), ("0", 0)],
)
def test_units_of_memory_are_slurms(memory: str, read: int) -> None:
    assert SlurmScript(f"#!/bin/sh\n#SBATCH --mem-per-cpu={memory}\n").read(0).memory_bytes == read


@pytest.mark.parametrize(
    ("directive", "says"),
    [
        ("--mem-per-cpu=1Gi", "--mem-per-cpu is '1Gi', which is no amount of memory to Slurm"),
        ("--mem-per-cpu=0.4", "--mem-per-cpu is '0.4'"),
        ("--mem-per-cpu=-1", "--mem-per-cpu is '-1'"),
        ("--mem-per-cpu=1G2", "--mem-per-cpu is '1G2'"),
        ("--cpus-per-task=400m", "--cpus-per-task is '400m', which is not a whole number"),
        ("-c 0.4", "--cpus-per-task is '0.4'"),
        ("-n0", "--ntasks is '0'"),
        ("--ntasks=four", "--ntasks is 'four'"),
        ("--gpus-per-task=two", "--gpus-per-task is 'two'"),
        ("--mem=4G", "--mem sizes nodes"),
        ("-N 2", "--nodes sizes nodes"),
    ],
)
def test_what_is_no_size_is_named(directive: str, says: str) -> None:
    with pytest.raises(InputError, match=says) as caught:
        SlurmScript(f"#!/bin/sh\n#SBATCH {directive}\n").read(0)
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["", "apiVersion: v1\n", "#SBATCH -n1\n", "#!/bin/sh\r\n#SBATCH -n1\r\n"])
def test_what_is_no_script_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        SlurmScript(text)


def test_slurm_gives_whole_cores() -> None:
    assert rounded(Group(replicas=2, cpu=0.07, memory_bytes=1)).cpu == 1
    assert rounded(Group(replicas=2, cpu=2.1, memory_bytes=GIB)) == Group(
        replicas=2, cpu=3, memory_bytes=3 * 342 * MIB
    )  # fmt: skip
