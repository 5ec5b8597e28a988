from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from sizewright.errors import InputError
from sizewright.formatting import (
    GIB,
    MIB,
    cpu_quantity,
    format_bytes,
    format_count,
    format_seconds,
    memory_quantity,
    write_seconds,
)
from sizewright.spec.units import (
    Bytes,
    Cores,
    Count,
    Seconds,
    parse_byte_count,
    parse_bytes,
    parse_cores,
    parse_count,
    parse_number,
    parse_seconds,
    read_bytes,
    read_cores,
)

MEMORY = [
    ("16Gi", 16 * GIB),
    ("512Mi", 512 * MIB),
    ("1.5Gi", 1536 * MIB),
    ("4Ki", 4096),
    ("2Ti", 2 * 1024 * GIB),
    ("3Pi", 3 * 1024**5),
    ("1Ei", 1024**6),
    ("2E", 2 * 10**18),
    ("2P", 2 * 10**15),
    ("2G", 2_000_000_000),
    ("100k", 100_000),
    ("100K", 100_000),
    ("16 GiB", 16 * GIB),
    ("16GB", 16_000_000_000),
    ("16 gb", 16_000_000_000),
    ("16g", 16_000_000_000),
    ("16gib", 16 * GIB),
    ("512mb", 512_000_000),
    ("512mi", 512 * MIB),
    ("7000B", 7000),
    ("1e6", 1_000_000),
    ("1E6", 1_000_000),
    ("1.5e9", 1_500_000_000),
    ("8.Ki", 8192),
    (".5Mi", 512 * 1024),
    ("+5Gi", 5 * GIB),
    ("2899102924800m", 2_899_102_925),  # `kubectl` prints 2.7Gi in this form
    ("1288490188800m", 1_288_490_189),
    ("3e15u", 3_000_000_000),
    ("1,000,000", 1_000_000),
    ("1 000 000", 1_000_000),
    ("1\u202f000\u202f000", 1_000_000),
    ("1'000'000", 1_000_000),
    ("45_840_617", 45_840_617),
    ("1,024.5Mi", 1024 * MIB + MIB // 2),
    ("9007199254740993", 2**53 + 1),
    ("9007199254740993.0", 2**53 + 1),
    (2**53 + 1, 2**53 + 1),
    (5e9, 5_000_000_000),
    (4096, 4096),
    (0, 0),
]


@pytest.mark.parametrize(("text", "value"), MEMORY)
def test_memory(text: object, value: int) -> None:
    assert parse_bytes(text) == parse_byte_count(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("500m", 0.5), ("2", 2.0), (0.25, 0.25), ("0.1", 0.1), (3, 3.0), ("3920m", 3.92), ("250000u", 0.25),
     ("500000000n", 0.5), ("1e1", 10), ("1E1", 10), ("5.", 5), (".5", 0.5), ("1k", 1000), (" 2 ", 2), ("70m", 0.07)],
)  # fmt: skip
def test_cores(text: object, value: float) -> None:
    assert parse_cores(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("4h", 14400), ("30m", 1800), ("90s", 90), ("250ms", 0.25), ("1d", 86400), ("1.5h", 5400), (60, 60),
     ("1h30m", 5400), ("1d 12h", 129_600), ("90 min", 5400), ("4:00:00", 14400), ("1-12:00:00", 129_600),
     ("PT1H30M", 5400), ("P1DT2H", 93_600), ("pt0.5s", 0.5), ("P2W", 1_209_600), ("PT1,5H", 5400), ("P0DT4H", 14400),
     ("1 day, 2:00:00", 93_600), ("2 days 03:00:00", 183_600), ("1h, 30m", 5400), ("1 hour and 30 minutes", 5400),
     ("1,000s", 1000), ("1e3", 1000), ("4H", 14400), ("4.0 h", 14400), ("2 hours", 7200), ("1w", 604_800)],
)  # fmt: skip
def test_durations(text: object, value: float) -> None:
    assert parse_seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("4.5e7", 45_000_000), ("1e3", 1000), ("45,840,617", 45_840_617), ("45_840_617", 45_840_617), ("45M", 45_000_000),
     ("1.5k", 1500), ("1Ki", 1024), ("2000m", 2), ("4.0", 4), (4.0, 4), ("010", 10), ("-3", -3),
     ("9007199254740993", 2**53 + 1), ("12345678901234567e3", 12_345_678_901_234_567_000)],
)  # fmt: skip
def test_counts(text: object, value: int) -> None:
    assert parse_count(text) == value
    assert parse_number(text) == float(value)


BAD = ["", "x", "4x", "Gi", "1 2", "1,5", "1,5Gi", "1.000.000", "1.000,5", "0,512", "1,00,000", "PT", "P1M",
       "P1Y", "PT1H2", "1h,", "1__0", "nan", "inf", "1e999",
       "1e", "0x10", "½", "٤", "1e3e3", None, True, False, [], {}, [4],
       float("inf"), float("-inf"), float("nan"), 10**400]  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=lambda value: str(value)[:8])
@pytest.mark.parametrize("parse", [parse_bytes, parse_cores, parse_seconds, parse_count, parse_number])
def test_invalid_quantity_is_refused_with_an_example(parse: Callable[[Any], Any], value: object) -> None:
    with pytest.raises(ValueError, match=r"is not .* \(write ") as caught:
        parse(value)
    assert len(str(caught.value)) < 180


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_cores, "4Gi", "it has no unit Gi"),
        (parse_cores, "500M", "it has no unit M"),
        (parse_bytes, "4h", "it has no unit h"),
        (parse_bytes, "-1", "it is negative"),
        (parse_bytes, "1,5Gi", "a point goes before decimals"),
        (parse_bytes, "1.000.000", "more than one decimal point"),
        (parse_bytes, "1e30", "above 8 EiB"),
        (parse_bytes, "400m", "only 0.4 bytes"),
        (parse_bytes, "512", "only 512 bytes"),
        (parse_bytes, 512, "only 512 bytes"),
        (parse_byte_count, "400m", "only 0.4 bytes"),
        (parse_seconds, "4Gi", "it has no unit Gi"),
        (parse_seconds, "12:30", "hours or minutes"),
        (parse_count, "45m", "m is a thousandth, M a million"),
        (parse_count, 1.5, "not a whole number"),
    ],
)
def test_a_refusal_says_what_is_wrong(parse: Callable[[Any], Any], text: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(text)


UNITS = {"": 1, "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
UNITS |= {unit: Fraction(10) ** (3 * power) for power, unit in enumerate("kMGTPE", 1)}
UNITS |= {f"{unit}i": Fraction(2) ** (10 * power) for power, unit in enumerate("KMGTPE", 1)}
QUANTITIES = st.tuples(
    st.integers(0, 10**15), st.integers(0, 9), st.one_of(st.sampled_from(list(UNITS)), st.integers(-9, 12)),
    st.sampled_from(["", ",", "_", "'", " "]), st.booleans(),
)  # fmt: skip


def kubernetes_quantity(digits: int, places: int, end: str | int, group: str, upper: bool) -> tuple[str, Fraction]:
    """Return a text in the form of Kubernetes (with digit groups), and its value."""
    integer, fraction = divmod(digits, 10**places)
    text = f"{integer:,}".replace(",", group) + (f".{fraction:0{places}d}" if places else "")
    if isinstance(end, int):
        return f"{text}{'E' if upper else 'e'}{end}", Fraction(digits, 10**places) * Fraction(10) ** end
    return text + end, Fraction(digits, 10**places) * UNITS[end]


@given(QUANTITIES)
def test_every_kubernetes_quantity_is_read_without_loss(drawn: tuple[int, int, str | int, str, bool]) -> None:
    text, number = kubernetes_quantity(*drawn)
    assert parse_number(text) == float(number)
    if number.denominator == 1:
        assert parse_count(text) == number
    if number == 0 or 4096 <= number < 2**63:
        assert parse_bytes(text) == math.ceil(number)
    if drawn[2] in ("", "m", "u", "n", "k") and number <= 10**9:
        assert parse_cores(text) == float(number)


@given(QUANTITIES)
def test_schema_accepts_every_quantity_that_is_read(drawn: tuple[int, int, str | int, str, bool]) -> None:
    import re

    text, number = kubernetes_quantity(*drawn)
    kinds: list[Any] = [Count] + [Bytes] * (4096 <= number < 2**63)
    for kind in kinds:
        pattern = TypeAdapter(kind).json_schema()["anyOf"][1]["pattern"]
        assert re.search(pattern, text), (kind, text)


@pytest.mark.parametrize("kind", [Bytes, Cores, Count, Seconds])
def test_plain_numbers_are_written_out(kind: Any) -> None:
    assert TypeAdapter(kind).json_schema(mode="serialization")["type"] in ("integer", "number")


@pytest.mark.parametrize("text", ["2899102924800m", "3Gi", "4e9", "4E9", "3221225472", "3.5G", "4000000k"])
def test_memory_text_has_the_same_value_in_every_file(tmp_path: Path, text: str) -> None:
    from sizewright.datasets.runs.history_files import import_history
    from sizewright.datasets.trials.files import import_trials
    from sizewright.spec import Cluster, Job, Queue, Rails
    from sizewright.spec.queue import CandidateRow

    memory = parse_bytes(text)
    (tmp_path / "job.yaml").write_text(f"bounds: {{worker: {{memory: [{text}, 9Ti]}}}}")
    (tmp_path / "cluster.yaml").write_text(f"hosts: [{{kind: a, cpu: 1, memory: {text}}}]\nquota: {{memory: {text}}}")
    (tmp_path / "rails.yaml").write_text(f"worker: {{memory: {text}}}")
    (tmp_path / "jobs.yaml").write_text(
        "jobs: [{job: a, current: {worker: [{replicas: 1, cpu: 1, memory_bytes: TEXT}], batch_size: 1e3}}]".replace(
            "TEXT", text
        )
    )
    (tmp_path / "t.csv").write_text(f"workers,ps,throughput,worker_memory_bytes\n1,1,5,{text}\n")
    (tmp_path / "h.csv").write_text(
        f"id,name,duration_s,workers,batch_size,worker_memory_bytes,ps_memory_peak_bytes\na,b,1h,1,1e3,{text},{text}\n"
    )
    cluster, run = Cluster.load(tmp_path / "cluster.yaml"), import_history(tmp_path / "h.csv")[0]
    current = Queue.load(tmp_path / "jobs.yaml").jobs[0].current
    assert not isinstance(current, str)
    assert current
    amounts = [
        Job.load(tmp_path / "job.yaml").bounds.worker.memory_bytes[0],
        cluster.hosts[0].memory_bytes,
        cluster.quota.memory_bytes,
        (Rails.load(tmp_path / "rails.yaml").worker.memory_bytes or (0,))[0],
        current.worker[0].memory_bytes,
        import_trials(tmp_path / "t.csv")[0].worker_memory_bytes,
        run.stretches[0].allocation.worker[0].memory_bytes,
        run.ps.memory_peak_bytes,
        CandidateRow.model_validate(
            {"workers": "1", "worker_cpu": "1", "worker_memory": text, "throughput": "1"}
        ).worker_memory,
        read_bytes(text, "memory"),
    ]
    assert amounts == [memory] * len(amounts)


@given(st.floats(4096, 1e15))
def test_written_quantities_are_rounded_up_by_less_than_one_unit(value: float) -> None:
    assert value <= parse_bytes(memory_quantity(value)) < value + MIB + 1e-3
    assert value <= parse_seconds(write_seconds(value)) < value + 60 + 1e-3


@pytest.mark.parametrize(
    ("cores", "quantity"), [(0.5, "500m"), (2, "2"), (1.1, "1100m"), (0.0001, "1m"), (0.2501, "251m"), (1.9999, "2")]
)
def test_cores_are_rounded_up_to_millicores(cores: float, quantity: str) -> None:
    assert cpu_quantity(cores) == quantity


@pytest.mark.parametrize(("cores", "quantity"), [(0.25, "300m"), (0.3, "300m"), (0.95, "1"), (0.01, "100m")])
def test_cores_are_rounded_up_to_coarser_steps(cores: float, quantity: str) -> None:
    assert cpu_quantity(cores, 100) == quantity


def test_every_count_of_millicores_is_itself() -> None:
    for millicores in range(1, 5000):
        quantity = cpu_quantity(millicores / 1000)
        assert (int(quantity[:-1]) if quantity.endswith("m") else int(quantity) * 1000) == millicores


@pytest.mark.parametrize(("size", "quantity"), [(1, "1Mi"), (MIB, "1Mi"), (MIB + 1, "2Mi"), (2 * GIB, "2048Mi")])
def test_memory_is_rounded_up_to_mi(size: int, quantity: str) -> None:
    assert memory_quantity(size) == quantity


def test_an_infinite_number_of_cores_is_refused() -> None:
    with pytest.raises(InputError, match="not a number of cores"):
        cpu_quantity(float("inf"))


@pytest.mark.parametrize("wrong", ["", "1Gi", "1G", "0", "-1", "nan", "1e999", None, True, [], "0x10", "½"])
def test_cores_that_a_manifest_cannot_have_are_refused(wrong: object) -> None:
    with pytest.raises(InputError, match=r"spec\.cpu is") as caught:
        read_cores(wrong, "spec.cpu")
    assert caught.value.remedy


@pytest.mark.parametrize("wrong", ["", "400m", "512", "1gi", "1GiB", "1,000,000", "-1Gi", "nan", None, False, {}, "x"])
def test_memory_that_a_manifest_cannot_have_is_refused(wrong: object) -> None:
    with pytest.raises(InputError, match=r"spec\.memory is") as caught:
        read_bytes(wrong, "spec.memory")
    assert caught.value.remedy


@given(st.integers(1, 10**15))
def test_memory_is_read_as_it_was_written(size: int) -> None:
    assert 0 <= read_bytes(memory_quantity(size), "") - size < MIB


@given(st.integers(1, 10**7))
def test_cores_are_read_as_they_were_written(millicores: int) -> None:
    assert read_cores(cpu_quantity(millicores / 1000), "") == millicores / 1000


def test_quantities_for_people() -> None:
    assert [format_bytes(v) for v in (16 * GIB, 1.5 * MIB, 12)] == ["16.0 GiB", "1.5 MiB", "12 B"]
    assert [format_seconds(v) for v in (14400, 90, 2, 172800)] == ["4.0 h", "1.5 min", "2.0 s", "2.0 d"]
    assert [format_count(n, "trial") for n in (0, 1, 1200)] == ["0 trials", "1 trial", "1,200 trials"]
