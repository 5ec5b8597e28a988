"""Train on the cluster of a test bed and print observations, one JSON object per line.

`cluster_driver.py change tcp|ray SAMPLES` changes the number of replicas while they train; `lose SAMPLES` waits for a
line on standard input once a node has been killed; `command` runs a program; `join ADDRESS` only joins; `paths
FOLDER` prints where workers import from.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from sizewright.errors import EngineError
from sizewright.spec import Allocation, Data, Job, Metrics, Model, Optimizer, Tables, Training
from sizewright.testing.audit import AuditProgram, audit_job, read_counts
from sizewright.training.command.session import CommandSession
from sizewright.training.ray.engine import NODE_IP_VARIABLE, Engine
from sizewright.training.session import Session

ADDRESS = os.environ["SIZEWRIGHT_ADDRESS"]
BATCH = 64
PATIENCE_S = 600.0


def small_job() -> Job:
    tables = Tables(count=3, rows=(300, 500, 2000), dim=4)
    model = Model(
        family="dlrm",
        dense_features=5,
        tables=tables,
        bottom_mlp=(16,),
        top_mlp=(16,),
        optimizer=Optimizer(name="adagrad", learning_rate=0.05),
    )
    return Job(model=model, data=Data(zipf=1.0), training=Training(batch_size=BATCH, sync="async"))


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def nodes(session: Session) -> dict[str, str]:
    """Return the address of each replica's machine."""
    import ray

    ips = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
    assert session._replica_group is not None
    return {member.name: ips[member.node] for member in session._replica_group.membership.members}


def counts(metrics: Metrics) -> dict[str, Any]:
    return {f"{r.role}-{r.index}": [r.bytes_sent, r.bytes_received, r.pushes] for r in metrics.replicas}


def leftovers(pids: dict[str, int]) -> dict[str, Any]:
    """Return what the cluster still has of an ended session after up to 10 s."""
    import ray
    from ray._private import state

    ray.init(address=ADDRESS, _node_ip_address=os.environ[NODE_IP_VARIABLE], logging_level=50, log_to_driver=False)
    end = time.monotonic() + 10
    while True:
        actors = [actor["ActorClassName"] for actor in state.actors().values() if actor["State"] != "DEAD"]
        groups = [group for group in ray.util.placement_group_table().values() if group["state"] != "REMOVED"]
        alive = [name for name, pid in pids.items() if os.path.exists(f"/proc/{pid}")]
        if time.monotonic() > end or not (actors or groups or alive):
            return {"actors": actors, "groups": len(groups), "processes": alive}
        time.sleep(0.2)


def change(transport: Literal["tcp", "ray"], samples: int) -> None:
    job, program = audit_job(samples, batch_size=BATCH), AuditProgram(step_s=0.01)
    with (
        tempfile.TemporaryDirectory() as folder,
        Session(job, address=ADDRESS, samples=samples, transport=transport, program=program) as session,
    ):
        session.scale(Allocation.of(2, 3, 0.4, 0.3, BATCH))
        pids = session.pids()
        say(nodes=nodes(session))
        session.scale(Allocation.of(3, 2, 0.4, 0.3, BATCH))
        old = next(name for name in session.pids() if name.startswith("ps-"))
        new = session.replace(old)
        say(nodes=nodes(session), replaced=[old, new], trained=session.observe().samples_trained)
        pids |= session.pids()
        end = time.monotonic() + 10
        while not all(sent and received for sent, received, _ in counts(session.observe()).values()):
            if time.monotonic() > end:
                break
            time.sleep(0.1)
        say(counts=counts(session.observe()))
        session.wait(PATIENCE_S)
        say(outcome=session.outcome().model_dump(mode="json"))
        session.checkpoint(folder)
        counted, dense_count = read_counts(folder, samples)
        say(once=int((counted == 1).sum()), seen=dense_count)
    say(left=leftovers(pids))


def lose(samples: int) -> None:
    with Session(small_job(), address=ADDRESS, samples=samples, snapshot_s=1.0, recover=True) as session:
        session.scale(Allocation.of(2, 3, 0.4, 0.3, BATCH))
        time.sleep(3.0)
        first, start = counts(session.observe()), time.monotonic()
        time.sleep(1.0)
        then, took = counts(session.observe()), time.monotonic() - start
        rates = {name: (count[2] - first[name][2]) / took for name, count in then.items()}
        pids = session.pids()
        say(nodes=nodes(session), rates=rates)
        sys.stdin.readline()
        session.wait(PATIENCE_S)
        pids |= session.pids()
        say(nodes=nodes(session), outcome=session.outcome().model_dump(mode="json"))
    say(left=leftovers(pids))


COUNTS = """
import os, time
from sizewright import log_samples
for _ in range(200):
    time.sleep(0.02)
    log_samples(10)
"""


def command() -> None:
    """Run a user's command: two workers, and two PS that only wait."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "program.py")
        program.write_text("import os, time\nif os.environ['JOB_NAME'] == 'ps': time.sleep(1000)\n" + COUNTS)
        fields = {"run": [sys.executable, str(program)], "rendezvous": "hosts", "folder": folder, "grace_s": 1}
        job = Job.model_validate({"name": "own", "command": fields, "training": {"batch_size": 10, "samples": 4000}})
        with CommandSession(job, address=ADDRESS, logs=folder) as session:
            session.scale(Allocation.of(2, 2, 0.3, 0.2, 10))
            metrics = session.observe()
            say(replicas={r.name: r.limited_by for r in metrics.replicas}, trained=metrics.samples_trained)
            say(finished=session.wait(PATIENCE_S), outcome=session.outcome().model_dump(mode="json"))
    say(left=leftovers({}))


def paths(folder: str) -> None:
    """Print where a worker imports from while the driver's folder is writable by everyone."""
    os.chdir(folder)
    engine = Engine(address=ADDRESS)
    say(paths=engine.ray.get(engine.ray.remote(num_cpus=0)(lambda: list(sys.path)).remote()))
    engine.stop()


def join(address: str) -> None:
    start = time.monotonic()
    try:
        Session(small_job(), address=address).stop()
    except EngineError as error:
        say(error=str(error), seconds=time.monotonic() - start)


if __name__ == "__main__":
    say(pid=os.getpid())
    if sys.argv[1] == "change":
        change("ray" if sys.argv[2] == "ray" else "tcp", int(sys.argv[3]))
    elif sys.argv[1] == "lose":
        lose(int(sys.argv[2]))
    elif sys.argv[1] == "command":
        command()
    elif sys.argv[1] == "paths":
        paths(sys.argv[2])
    else:
        join(sys.argv[2])
