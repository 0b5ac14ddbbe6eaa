#!/usr/bin/env python3
"""The seed step in several processes of TensorFlow: MultiWorkerMirroredStrategy, RING.

--batch is the global batch, of which each worker takes its part. Keras 3's `fit` does not take the
batches of this strategy (TensorFlow 2.21, Keras 3.15), so this is the custom loop of TensorFlow's
guide on Keras' layers: a tf.function for each step.
"""

import json
import os
import sys
import time

import support

options = support.parse(__doc__, workers=2)


def environment_of(rank, addresses):
    task = {"type": "worker", "index": rank}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}


rank = support.become_worker(options, environment_of)
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
try:
    import numpy
    import tensorflow as tf
    import keras
except ImportError as error:
    sys.exit(f"keras_multi_worker_mnist: {error}; install the peers with "
             "benchmarks/peers/setup.sh")


def main():
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    keras.utils.set_random_seed(1)
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=ring)
    )
    images, labels = support.images_and_labels(numpy)

    def scale(image, label):
        return tf.cast(image, tf.float32) / 255, label

    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    train = (
        tf.data.Dataset.from_tensor_slices((images[..., None], labels))
        .map(scale)
        .cache()
        .shuffle(10_000)
        .repeat()
        .batch(options.batch)
        .with_options(sharding)
    )
    batches = iter(strategy.experimental_distribute_dataset(train))
    with strategy.scope():
        model = keras.Sequential(
            [
                keras.Input((28, 28, 1)),
                keras.layers.Conv2D(32, 3, activation="relu"),
                keras.layers.MaxPooling2D(),
                keras.layers.Flatten(),
                keras.layers.Dense(64, activation="relu"),
                keras.layers.Dense(10),
            ]
        )
        optimizer = keras.optimizers.SGD(learning_rate=support.RATE)
        optimizer.build(model.trainable_variables)

    def replica_step(inputs):
        x, y = inputs
        with tf.GradientTape() as tape:
            logits = model(x, training=True)
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)
            loss = tf.reduce_sum(losses) / options.batch
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply(gradients, model.trainable_variables)
        right = tf.cast(tf.argmax(logits, axis=1) == y, tf.float32)
        return tf.stack([loss, tf.reduce_sum(right) / options.batch])

    @tf.function
    def step(iterator):
        return strategy.run(replica_step, args=(next(iterator),))

    chunks = support.Chunks()
    for _ in range((options.warmup + options.steps) // support.CHUNK):
        chunks.begin()
        results = tf.zeros(2)
        for _ in range(support.CHUNK):
            results += step(batches)
        strategy.gather(results[None], axis=0).numpy().sum(axis=0)
        chunks.end()
    if rank == 0:
        versions = {"keras": keras.__version__, "tensorflow": tf.__version__}
        support.report("tensorflow-ring", options, chunks, versions)
        time.sleep(1)  # a worker whose leader has ended first fails
    os._exit(0)


main()
