#!/usr/bin/env python3
"""The seed step in several processes of TensorFlow: MultiWorkerMirroredStrategy, RING.

--batch is the global batch, divided among the workers. Keras 3's `fit` does not accept the batches
of this strategy (TensorFlow 2.21, Keras 3.15), so this is the custom loop of TensorFlow's
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
support.set_tensorflow_up()
try:
    import tensorflow as tf
    import keras
    import keras_model
except ImportError as error:
    sys.exit(f"keras_multi_worker_mnist: {error}; install the peers with "
             "benchmarks/peers/setup.sh")


def main():
    keras_model.start(options)
    ring = tf.distribute.experimental.CommunicationImplementation.RING
    strategy = tf.distribute.MultiWorkerMirroredStrategy(
        communication_options=tf.distribute.experimental.CommunicationOptions(implementation=ring)
    )
    sharding = tf.data.Options()
    sharding.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    train = keras_model.data(options).with_options(sharding)
    batches = iter(strategy.experimental_distribute_dataset(train))
    with strategy.scope():
        model = keras_model.make()
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
        support.report("tensorflow-ring", options, chunks, keras_model.versions())
        time.sleep(1)  # a worker fails if its leader ends first
    os._exit(0)


main()
