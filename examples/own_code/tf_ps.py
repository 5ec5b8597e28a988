"""TensorFlow's parameter-server training: tables on PS, and a chief that schedules the steps.

It reads TF_CONFIG and does not use Sizewright. The chief prints its progress as lines of JSON.
"""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

BATCH, STEPS = int(sys.argv[1]), int(sys.argv[2])
ROWS, FIELDS, DIM = 100_000, 26, 16
tf.config.threading.set_intra_op_parallelism_threads(1)
resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc"
    )
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    table = tf.Variable(tf.random.uniform([ROWS, DIM], -0.05, 0.05))
    hidden = tf.Variable(tf.random.normal([FIELDS * DIM, 128], stddev=0.05))
    last = tf.Variable(tf.random.normal([128, 1], stddev=0.05))


def samples() -> tf.data.Dataset:
    """Return random ids and labels."""
    return tf.data.Dataset.range(1 << 40).map(
        lambda _: (
            tf.random.uniform([BATCH, FIELDS], 0, ROWS, tf.int64),
            tf.cast(tf.random.uniform([BATCH, 1]) < 0.25, tf.float32),
        )
    )


@tf.function
def step(iterator):
    """Run one step of one worker: pull rows, push gradients."""

    def replica(ids, labels):
        with tf.GradientTape() as tape:
            rows = tf.reshape(tf.nn.embedding_lookup(table, ids), [BATCH, FIELDS * DIM])
            logits = tf.nn.relu(rows @ hidden) @ last
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        table_grad, hidden_grad, last_grad = tape.gradient(loss, [table, hidden, last])
        table.scatter_sub(tf.IndexedSlices(0.01 * table_grad.values, table_grad.indices))
        hidden.assign_sub(0.01 * hidden_grad)
        last.assign_sub(0.01 * last_grad)
        return loss

    return strategy.run(replica, args=next(iterator))


iterator = iter(coordinator.create_per_worker_dataset(samples))
done, started = 0, time.perf_counter()
while done < STEPS:
    for _ in range(8):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    done += 8
    print(json.dumps({"samples": done * BATCH}), flush=True)
print(f"done: {done * BATCH / (time.perf_counter() - started):.0f} samples/s", flush=True)
