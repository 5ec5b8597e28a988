from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sizewright.errors import EngineError, JobError
from sizewright.spec import Job
from sizewright.training.leases.sample_ranges import SampleRanges
from sizewright.training.ps import snapshot_store
from sizewright.training.ps.embedding import EmbeddingRows
from sizewright.training.ps.optimizers import make_rule
from sizewright.training.ps.routing import PARTS, Routing, Server, partition_of
from sizewright.training.ps.snapshot_files import read_snapshot, snapshots
from sizewright.training.ps.snapshot_store import SNAPSHOT_STORE, SnapshotStore
from sizewright.training.transport.listeners import PsServer
from sizewright.training.transport.peers import Peer
from tests.helpers.training_parts import TOKEN, make_ps, small_job

JOB = small_job(optimizer="adam")
WIDTH, DENSE = JOB.model.row_widths[0], 10
TRAINED = [(0, 640), (704, 768)]
MORE = SampleRanges([(0, 768)])
ALL = np.arange(PARTS)


@pytest.fixture
def stores(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[SnapshotStore]]:
    monkeypatch.setattr(snapshot_store, "check_import_folder", lambda: None)  # the tests may import from anywhere
    opened: list[SnapshotStore] = []
    yield opened
    for store in opened:
        store.close()


def new_store(stores: list[SnapshotStore], job: Job = JOB) -> SnapshotStore:
    stores.append(SnapshotStore(job, np.zeros(DENSE, np.float32), TOKEN, "127.0.0.1"))
    return stores[-1]


def some_rows(keys: np.ndarray, seed: int = 0) -> EmbeddingRows:
    rng = np.random.default_rng(seed)
    state = make_rule(JOB.model.optimizer).state_width(WIDTH)
    shapes = (len(keys), WIDTH), (len(keys), state)
    return EmbeddingRows(keys, *(rng.standard_normal(shape).astype(np.float32) for shape in shapes))


def filled(
    stores: list[SnapshotStore], rows: int = 3000
) -> tuple[SnapshotStore, EmbeddingRows, np.ndarray, np.ndarray]:
    """A keeper that two servers have sent their rows and slices to, some rows twice."""
    store, sent = new_store(stores), some_rows(np.arange(rows, dtype=np.int64) * 7, seed=1)
    weights = np.arange(DENSE, dtype=np.float32)[:, None]
    state = np.random.default_rng(2).random((DENSE, 2), dtype=np.float32)
    for source, part in ((1, slice(0, 4)), (2, slice(4, DENSE))):
        peer = Peer(store.address(), TOKEN, source)
        mine = sent.keys % 2 == source - 1
        peer.insert(some_rows(sent.keys[mine][:10], seed=9))
        peer.insert(EmbeddingRows(*(array[mine] for array in sent)))
        peer.put_dense(part.start, weights[part], state[part])
        for samples, parts in ((SampleRanges(TRAINED), ALL[source - 1 :: 4]), (MORE, ALL[source + 1 :: 4])):
            peer.put_applied(parts, samples)
        assert store.rows() == (0 if source == 1 else np.sum(sent.keys % 2 == 0))  # nothing counts before all is there
        peer.done(1)
        peer.close()
    return store, sent, weights, state


def check_restored(store: SnapshotStore, sent: EmbeddingRows, weights: np.ndarray, state: np.ndarray) -> None:
    """Three empty servers get each its partitions and its slice, exactly."""
    routing = Routing.even(tuple(Server(i, ("", 0)) for i in (1, 2, 3)), DENSE, version=5)
    owners = routing.owners[partition_of(sent.keys)]
    for number in (1, 2, 3):
        ps = make_ps(WIDTH, name="adam", dense=0, version=0)
        server = PsServer(ps, TOKEN)
        mine, dense = owners == number - 1, routing.dense_of(number)
        parts = routing.parts_of(number)
        ps.expect(5, {SNAPSHOT_STORE}, dense, parts)
        assert store.restore(server.address, parts, dense, 5) == mine.sum() == ps.stores[0].rows
        assert ps.version == 5
        applied = {tuple(group.parts): list(group.samples) for group in ps.applied_groups()}
        assert applied == {
            tuple(parts[np.isin(parts % 4, (0, 1))]): TRAINED,
            tuple(parts[np.isin(parts % 4, (2, 3))]): [(0, 768)],
        }
        got = ps.stores[0].rows_at(ps.stores[0].locate(sent.keys[mine]))
        for theirs, ours in zip(got, (array[mine] for array in sent), strict=True):
            np.testing.assert_array_equal(theirs, ours)
        start, *values = ps.dense.part(0, DENSE)
        assert start == dense.start
        np.testing.assert_array_equal(values[0], weights[dense])
        np.testing.assert_array_equal(values[1], state[dense])
        server.close()


def test_servers_are_restored_with_the_rows_that_others_sent(stores: list[SnapshotStore]) -> None:
    store, sent, weights, state = filled(stores)
    assert store.rows() == len(sent.keys)
    assert store.dense_weights().tolist() == weights[:, 0].tolist()
    check_restored(store, sent, weights, state)


def test_snapshot_on_disk_restores_everything(stores: list[SnapshotStore], tmp_path: Path) -> None:
    store, *everything = filled(stores)
    assert store.save(str(tmp_path / "new" / "folder"), 5, 7) == 704
    again = new_store(stores)
    again.load(str(tmp_path / "new" / "folder"))
    info, _ = read_snapshot(tmp_path / "new" / "folder", JOB)
    assert (info.job_hash, info.rows, info.updates_lost, info.samples_repeated) == (JOB.hash, 3000, 5, 7)
    assert list(info.trained) == TRAINED
    assert info.partly_applied == [(640, 704)]
    assert again.rows() == 3000
    check_restored(again, *everything)


def test_snapshot_of_rows_of_several_widths_is_read_back(stores: list[SnapshotStore], tmp_path: Path) -> None:
    job = small_job(optimizer="adam", dim=(4, 8, 4, 12))
    store, again = new_store(stores, job), new_store(stores, job)
    rng, peer = np.random.default_rng(0), Peer(store.address(), TOKEN, 1)
    sent = {}
    for width, keys in ((4, np.arange(30)), (12, np.arange(100, 117))):  # the table of 8 floats has no rows yet
        values = (rng.standard_normal((len(keys), n)).astype(np.float32) for n in (width, 2 * width))
        sent[width] = EmbeddingRows(keys, *values)
        peer.insert(sent[width])
    peer.put_dense(0, np.ones((DENSE, 1), np.float32), np.ones((DENSE, 2), np.float32))
    peer.put_applied(ALL, MORE)
    peer.done(1)
    peer.close()
    store.save(str(tmp_path), 0, 0)
    again.load(str(tmp_path))
    assert again.rows() == store.rows() == 47
    ps = make_ps((4, 8, 12), name="adam", dense=0, version=0)
    server = PsServer(ps, TOKEN)
    ps.expect(5, {SNAPSHOT_STORE}, slice(0, DENSE), ALL)
    assert again.restore(server.address, ALL, slice(0, DENSE), 5) == 47
    for rows_store in ps.stores:
        assert rows_store.rows == len(sent[rows_store.width].keys) if rows_store.width in sent else not rows_store.rows
        for ours in [sent[rows_store.width]] if rows_store.width in sent else []:
            theirs = rows_store.rows_at(rows_store.locate(ours.keys))
            for one, same in zip(theirs, ours, strict=True):
                np.testing.assert_array_equal(one, same)
    server.close()
    (tmp_path / "snapshot-000001" / "state-12.npy").unlink()
    with pytest.raises(JobError, match=r"state-12\.npy is missing"):
        again.load(str(tmp_path))


def test_latest_two_snapshots_are_kept(stores: list[SnapshotStore], tmp_path: Path) -> None:
    store, *_ = filled(stores, 5)
    for lost, expected in ((10, [1]), (20, [1, 2]), (30, [2, 3])):
        store.save(str(tmp_path), lost, 0)
        assert [path.name for path in snapshots(tmp_path)] == [f"snapshot-{number:06d}" for number in expected]
        assert read_snapshot(tmp_path, JOB)[0].updates_lost == lost
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("remnant", [".snapshot-000002", "snapshot-old"])
def test_incomplete_snapshot_is_ignored(stores: list[SnapshotStore], tmp_path: Path, remnant: str) -> None:
    store, *_ = filled(stores, 5)
    store.save(str(tmp_path), 0, 0)
    (tmp_path / remnant).mkdir()
    (tmp_path / remnant / "keys.npy").write_bytes(b"half of it")
    if remnant == "snapshot-old":  # a user's copy is nobody's business
        (tmp_path / remnant / "snapshot.json").write_text("{}")
    assert [path.name for path in snapshots(tmp_path)] == ["snapshot-000001"]
    again = new_store(stores)
    again.load(str(tmp_path))
    assert again.rows() == 5
    store.save(str(tmp_path), 9, 0)
    assert read_snapshot(tmp_path, JOB)[0].updates_lost == 9


def test_missing_snapshot_or_one_of_another_job_is_refused(stores: list[SnapshotStore], tmp_path: Path) -> None:
    with pytest.raises(JobError, match="There is no snapshot"):
        new_store(stores).load(str(tmp_path / "none"))
    filled(stores, 5)[0].save(str(tmp_path), 0, 0)
    other = new_store(stores, small_job(optimizer="adam", dim=8))
    with pytest.raises(JobError, match="belongs to another job"):
        other.load(str(tmp_path))
    assert other.rows() == 0
    more = JOB.model_copy(update={"training": JOB.training.model_copy(update={"samples": 5})})
    same = new_store(stores, more)
    same.load(str(tmp_path))
    assert same.rows() == 5  # only how long it trains differs


@pytest.mark.parametrize(
    ("name", "keep"), [("snapshot.json", 9), ("keys.npy", 150), ("state.npy", 0), ("dense.npy", 60)]
)
def test_a_damaged_snapshot_is_refused(stores: list[SnapshotStore], tmp_path: Path, name: str, keep: int) -> None:
    filled(stores, 500)[0].save(str(tmp_path), 0, 0)
    damaged = snapshots(tmp_path)[0] / name
    damaged.write_bytes(damaged.read_bytes()[:keep])
    with pytest.raises(JobError, match="snapshot-000001 is damaged"):
        read_snapshot(tmp_path, JOB)
    with pytest.raises(JobError, match="snapshot-000001 is damaged"):
        new_store(stores).load(str(tmp_path))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small disk, and not everywhere")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_full_disk_is_reported_and_the_older_snapshot_kept(stores: list[SnapshotStore], small_disk: Path) -> None:
    store, *_ = filled(stores, 2000)  # of 56 bytes: they fit, and 10,000 do not
    store.save(str(small_disk), 0, 0)
    peer = Peer(store.address(), TOKEN, 1)
    peer.insert(some_rows(np.arange(10**6, 10**6 + 8000, dtype=np.int64)))
    peer.done(2)
    peer.close()
    with pytest.raises(EngineError, match=r"could not be written to .*: (no space left|it may be full)"):
        store.save(str(small_disk), 0, 0)
    assert len(list(small_disk.iterdir())) == 1  # nothing half-written is left
    again = new_store(stores)
    again.load(str(small_disk))
    assert again.rows() == 2000
    assert store.rows() == 10_000


def test_unwritable_folder_is_reported(stores: list[SnapshotStore], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="could not be written"):
        filled(stores, 5)[0].save(str(tmp_path / "file"), 0, 0)


def test_snapshot_that_a_later_one_of_its_server_overtook_is_ignored(stores: list[SnapshotStore]) -> None:
    """A server whose connection was cut sends a new snapshot, while the store still reads the old one."""
    store, sent, weights, state = filled(stores)
    late, again = (Peer(store.address(), TOKEN, 1) for _ in range(2))
    mine = sent.keys % 2 == 0
    for peer, rows in ((late, some_rows(sent.keys[mine], seed=5)), (again, EmbeddingRows(*(a[mine] for a in sent)))):
        peer.insert(rows)
        peer.put_applied(ALL[0::4], SampleRanges([(0, 8)] if peer is late else TRAINED))
    again.done(3)
    with pytest.raises(OSError, match="closed"):
        late.done(2)
    for peer in (late, again):
        peer.close()
    check_restored(store, sent, weights, state)


def test_incomplete_data_and_data_of_replaced_servers_are_ignored(
    stores: list[SnapshotStore],
) -> None:
    store, sent, *_ = filled(stores, 100)
    cut, replaced = (Peer(store.address(), TOKEN, source) for source in (1, 2))
    for peer in (cut, replaced):
        peer.insert(some_rows(np.arange(10**6, 10**6 + 50, dtype=np.int64)))
        peer.put_applied(ALL, SampleRanges([(0, 10**6)]))
    cut.close()
    store.refuse([2])
    with pytest.raises(OSError, match="closed"):
        replaced.done(2)
    replaced.close()
    assert store.rows() == len(sent.keys)
