"""TensorFlow's parameter-server training: tables on PS, a chief that hands steps to the workers. Knows TF_CONFIG only.

The chief prints what it has done as lines of JSON; nothing of Sizewright is used here.
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
    """Made-up ids and labels."""
    return tf.data.Dataset.range(1 << 40).map(
        lambda _: (
            tf.random.uniform([BATCH, FIELDS], 0, ROWS, tf.int64),
            tf.cast(tf.random.uniform([BATCH, 1]) < 0.25, tf.float32),
        )
    )


@tf.function
def step(iterator):
    """One step of one worker: rows are pulled, gradients pushed."""

    def replica(ids, labels):
        with tf.GradientTape() as tape:
            rows = tf.reshape(tf.nn.embedding_lookup(table, ids), [BATCH, FIELDS * DIM])
            logits = tf.nn.relu(rows @ hidden) @ last
            loss = tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))
        of_table, of_hidden, of_last = tape.gradient(loss, [table, hidden, last])
        table.scatter_sub(tf.IndexedSlices(0.01 * of_table.values, of_table.indices))
        hidden.assign_sub(0.01 * of_hidden)
        last.assign_sub(0.01 * of_last)
        return loss

    return strategy.run(replica, args=next(iterator))


iterator = iter(coordinator.create_per_worker_dataset(samples))
done, began = 0, time.perf_counter()
while done < STEPS:
    for _ in range(8):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    done += 8
    print(json.dumps({"samples": done * BATCH}), flush=True)
print(f"done: {done * BATCH / (time.perf_counter() - began):.0f} samples/s", flush=True)
