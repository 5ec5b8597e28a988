"""Scripts for sbatch: sizes read and written, everything else kept."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sizewright.errors import InputError
from sizewright.executors.slurm.script import SlurmScript
from sizewright.executors.slurm.sizes import rounded
from sizewright.formatting import GIB, MIB
from sizewright.spec import Gpu, Group

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
export SIZEWRIGHT_BATCH_SIZE="512"  # read by train.py
srun --het-group=0 python train.py : --het-group=1 python ps.py"""  # and no line break at the end


def test_sizes_are_changed_in_place_and_nothing_else() -> None:
    script = SlurmScript(BASE)
    script.write(0, Group(replicas=6, cpu=0.5, memory_bytes=GIB))
    script.write(1, Group(replicas=3, cpu=2, memory_bytes=GIB, gpu=Gpu(kind="a100", count=2)))
    script.set_batch_size(64)
    expected = (
        BASE.replace("-n 2", "-n 6")
        .replace("--ntasks=1 ", "--ntasks=3 ")
        .replace("--cpus-per-task=4 --mem-per-cpu=2048", "--cpus-per-task=2 --mem-per-cpu=512M")
        .replace("mem-per-cpu=512M\n", "mem-per-cpu=512M\n#SBATCH --gpus-per-task=a100:2\n")
        .replace('"512"', '"64"')
    )
    assert script.text == expected
    assert SlurmScript(expected).read(0) == Group(replicas=6, cpu=1, memory_bytes=GIB)
    assert SlurmScript(expected).read(1) == Group(
        replicas=3, cpu=2, memory_bytes=GIB, gpu=Gpu(kind="a100", count=2)
    )  # fmt: skip
    assert SlurmScript(expected).batch_size == 64


def test_equal_sizes_keep_their_notation() -> None:
    script = SlurmScript(BASE)
    for component in (0, 1):
        script.write(component, script.read(component))
    assert script.text == BASE


def test_missing_options_are_added_to_their_component() -> None:
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
    ("directive", "message"),
    [
        ("--mem-per-cpu=1Gi", "--mem-per-cpu is '1Gi', which Slurm does not accept as an amount"),
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
def test_invalid_size_is_named(directive: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        SlurmScript(f"#!/bin/sh\n#SBATCH {directive}\n").read(0)
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["", "apiVersion: v1\n", "#SBATCH -n1\n", "#!/bin/sh\r\n#SBATCH -n1\r\n"])
def test_text_that_is_not_a_script_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        SlurmScript(text)


def test_sizes_are_rounded_to_whole_cores() -> None:
    assert rounded(Group(replicas=2, cpu=0.07, memory_bytes=1)).cpu == 1
    assert rounded(Group(replicas=2, cpu=2.1, memory_bytes=GIB)) == Group(
        replicas=2, cpu=3, memory_bytes=3 * 342 * MIB
    )  # fmt: skip


@pytest.mark.parametrize(
    ("directives", "read"),
    [
        ("  # a comment with blanks before it\n\t# and a tab\n#SBATCH -n 4", (4, 1)),
        ("\n \t \n#\n#SBATCH -n 4", (4, 1)),
        ("#SBATCH -n4 -c2", (4, 2)),
        ("#SBATCH--ntasks=4", (4, 1)),
        ("#SLURM --ntasks=4", (4, 1)),
        ("#SBATCH --ntasks '4' --cpus-per-task=\"2\"", (4, 2)),
        ("#SBATCH '--ntasks=4' \"-c\" 2", (4, 2)),
        ("#SBATCH --ntasks=4#of workers", (4, 1)),
        ("#SBATCH --comment='a # b' --ntasks=4 # --ntasks=5", (4, 1)),
        ("#SBATCH --comment=a\\ b\\# --ntasks=4", (4, 1)),
        ("#SBATCH --ntasks=1\n#SBATCH -n 4", (4, 1)),  # the last one wins
        ("#SBATCH --cpus-per-t=2 --ntasks=4", (4, 2)),  # abbreviated
        ("#SBATCH -p main -t 1:00:00 --exclusive -n 4", (4, 1)),
        ("#PBS -l nodes=9\n#SBATCH -n 4", (4, 1)),
    ],
)
def test_directives_are_read_where_sbatch_reads_them(directives: str, read: tuple[int, int]) -> None:
    script = SlurmScript(f"#!/bin/bash\n{directives}\nsrun train\n#SBATCH -n 77\n")
    assert (script.read(0).replicas, script.read(0).cpu) == read
    script.write(0, Group(replicas=6, cpu=3, memory_bytes=GIB))
    assert SlurmScript(script.text).read(0) == Group(replicas=6, cpu=3, memory_bytes=3 * 342 * MIB)
    assert script.text.endswith("\nsrun train\n#SBATCH -n 77\n")
    assert script.remarks() == [
        f"The script: line {script.text.count(chr(10)) - 1} (srun train) is a command, and sbatch reads no #SBATCH "
        f"line below it (line {script.text.count(chr(10))})."
    ]


@pytest.mark.parametrize("separator", ["hetjob", "packjob", "HETJOB", " hetjob  # servers", "hetjob --qos=high"])
def test_components_are_separated_as_sbatch_separates_them(separator: str) -> None:
    script = SlurmScript(f"#!/bin/sh\n#SBATCH -n 4\n#SBATCH {separator}\n#SBATCH -n 1\n")
    assert script.components == 2
    assert [script.read(i).replicas for i in (0, 1)] == [4, 1]
    assert not script.remarks()


@pytest.mark.parametrize(
    ("directive", "word"),
    [("--job-name=ctr-hetjob", "hetjob"), ('--comment="a hetjob run"', "hetjob"), ("-J packjob", "packjob"),
     ("--qos=high # hetjob", "hetjob")],
)  # fmt: skip
def test_directive_that_sbatch_takes_for_a_separator_is_named(directive: str, word: str) -> None:
    script = SlurmScript(f"#!/bin/sh\n#SBATCH -n 4\n#SBATCH {directive}\n#SBATCH -n 1\n")
    assert script.components == 2
    (remark,) = script.remarks()
    assert f"line 3 for a separator of components, since it has '{word}'" in remark


def test_command_above_all_directives_is_named() -> None:
    text = "#!/bin/bash\nset -euo pipefail\n#SBATCH --ntasks=4\n#SBATCH hetjob\n"
    with pytest.raises(InputError, match=r"line 2 \(set -euo pipefail\) is a command.*\(lines 3 and 4\)") as caught:
        SlurmScript(text)
    assert "above it" in caught.value.remedy


def test_directive_that_sbatch_takes_for_a_comment_is_named() -> None:
    for line in ("  #SBATCH -n 4", "#sbatch -n 4", "# sbatch --ntasks=4"):
        script = SlurmScript(f"#!/bin/sh\n#SBATCH -p main\n{line}\n")
        assert script.read(0).replicas == 1
        assert "sbatch takes line 3 for a comment" in script.remarks()[0]
    assert not SlurmScript("#!/bin/sh\n#SBATCH -n 4\n##SBATCH -n 5\n# SBATCH is read\n").remarks()


def test_quote_that_is_not_closed_is_named() -> None:
    with pytest.raises(InputError, match="line 2 has no second '"):
        SlurmScript("#!/bin/sh\n#SBATCH --comment='ours\n")


_LINES = st.sampled_from(
    ["", "  ", "# note", "\t # note", "#SBATCH -p main", "#SBATCH --comment='n -n 3' # -n 2", "##SBATCH -n 8",
     "#SBATCH -n {n}", "#SBATCH --ntasks={n} # why", "#SBATCH --ntasks \"{n}\"", "#SBATCH -c{c}",
     "#SBATCH --cpus-per-task={c} --mem-per-cpu={m}M", "#SBATCH --mem-per-cpu '{m}'"]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_random_scripts_change_only_their_sizes(data: st.DataObject) -> None:
    components = data.draw(st.integers(1, 3))
    numbers = {key: st.integers(1, 99) for key in "ncm"}
    lines = ["#!/bin/bash"]
    for component in range(components):
        lines += ["#SBATCH hetjob"] if component else []
        for line in data.draw(st.lists(_LINES, max_size=6)):
            lines.append(line.format(**{key: data.draw(value) for key, value in numbers.items()}))
    script = SlurmScript("\n".join([*lines, "set -e", "srun -n 5 train"]))
    assert script.components == components
    sizes = [
        Group(replicas=data.draw(st.integers(1, 50)), cpu=data.draw(st.integers(1, 9)), memory_bytes=0)
        for _ in range(components)
    ]
    for component, size in enumerate(sizes):
        before = script.read(component).memory_bytes
        known = size.model_copy(update={"memory_bytes": data.draw(st.sampled_from([0, GIB]))})
        script.write(component, known)
        assert script.read(component).model_copy(update={"memory_bytes": 0}) == size
        if known.memory_bytes:
            assert GIB <= script.read(component).memory_bytes < GIB + size.cpu * MIB
        else:
            assert bool(script.read(component).memory_bytes) == bool(before)
    once = script.text
    for component in range(components):
        script.write(component, script.read(component))
    assert script.text == once
    blind = [re.sub(r"(?<![-\w])(-n|--ntasks|-c|--cpus-per-task|--mem-per-cpu)[= ]?['\"]?\d+M?['\"]?", "", line)
             if line.startswith("#SBATCH") else line for line in once.split("\n")]  # fmt: skip
    kept = [re.sub(r"(?<![-\w])(-n|--ntasks|-c|--cpus-per-task|--mem-per-cpu)[= ]?['\"]?\d+M?['\"]?", "", line)
            if line.startswith("#SBATCH") else line for line in lines]  # fmt: skip
    assert [line for line in blind if line.strip() != "#SBATCH"] == [
        line for line in [*kept, "set -e", "srun -n 5 train"] if line.strip() != "#SBATCH"
    ]


@pytest.mark.parametrize(
    "directive",
    ["--ntasks = 4", "--ntasks= 4", "--ntasks =4", "-n=4", "-n 4 four", "ntasks=4", "--ntasks=4 \\\\", "-c",
     "--mem-per-cpu=1G --ntasks"],
)  # fmt: skip
def test_directive_that_sbatch_refuses_is_named(directive: str) -> None:
    with pytest.raises(InputError, match=r"in line 3 .*, and sbatch refuses it") as caught:
        SlurmScript(f"#!/bin/bash\n#SBATCH -J ctr\n#SBATCH {directive}\nsrun python train.py\n")
    assert "--ntasks=4 or -n 4" in caught.value.remedy


@pytest.mark.parametrize("directive", ["--ntasks 4", "-n4", "-n 4", "\t--ntasks=4\t# of them", "--ntasks=4 # = 4"])
def test_directive_that_sbatch_takes_is_read(directive: str) -> None:
    assert SlurmScript(f"#!/bin/bash\n#SBATCH {directive}\nsrun a\n").read(0).replicas == 4


@pytest.mark.parametrize("array", ["--array=1-3", "-a 1-3", "-a1-3", "--arr 1-3%2"])
@pytest.mark.parametrize("first", [True, False])
def test_job_array_of_a_heterogeneous_job_is_refused(array: str, first: bool) -> None:
    lines = [f"-n1 {array}", "hetjob", "-n1"] if first else ["-n1", "hetjob", f"-n1 {array}"]
    with pytest.raises(InputError, match="--array and hetjob, but Slurm has no job arrays"):
        SlurmScript("#!/bin/bash\n" + "".join(f"#SBATCH {line}\n" for line in lines) + "srun a\n")


def test_job_array_of_one_component_is_reported() -> None:
    (remark,) = SlurmScript("#!/bin/bash\n#SBATCH -n1 --array=1-3\nsrun a\n").remarks()
    assert "--array=1-3 starts a job of these sizes per index" in remark


def test_directive_that_is_a_template_is_named() -> None:
    with pytest.raises(InputError, match=r"line 2, is a template") as caught:
        SlurmScript("#!/bin/bash\n#SBATCH --ntasks={{n}}\nsrun a\n")
    assert "Render the template first" in caught.value.remedy
