#!/usr/bin/env python3
"""The seed step in Keras on TensorFlow: the tutorials' CNN, SGD(0.001), trained by `fit`.

Keras' defaults stay, so the step is a tf.function; --jit compiles it with XLA.
"""

import os
import sys

import support


def add_options(parser):
    parser.add_argument("--jit", action="store_true", help="compile the step with XLA")


options = support.parse(__doc__, add_options)
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
try:
    import numpy
    import tensorflow as tf
    import keras
except ImportError as error:
    sys.exit(f"keras_mnist: {error}; install the peers with benchmarks/peers/setup.sh")


class TimeChunks(keras.callbacks.Callback):
    """An epoch is a chunk. There is no hook for each step, so that Keras waits for none."""

    def __init__(self, chunks):
        super().__init__()
        self.chunks = chunks

    def on_epoch_begin(self, epoch, logs=None):
        self.chunks.begin()

    def on_epoch_end(self, epoch, logs=None):
        self.chunks.end()


def main():
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    keras.utils.set_random_seed(1)
    images, labels = support.images_and_labels(numpy)

    def scale(image, label):
        return tf.cast(image, tf.float32) / 255, label

    train = (
        tf.data.Dataset.from_tensor_slices((images[..., None], labels))
        .map(scale)
        .cache()
        .shuffle(10_000)
        .repeat()
        .batch(options.batch)
    )
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
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=support.RATE),
        metrics=["accuracy"],
        jit_compile=True if options.jit else "auto",
    )
    chunks = support.Chunks()
    model.fit(
        train,
        epochs=(options.warmup + options.steps) // support.CHUNK,
        steps_per_epoch=support.CHUNK,
        callbacks=[TimeChunks(chunks)],
        verbose=0,
    )
    name = "keras-jit" if options.jit else "keras"
    versions = {"keras": keras.__version__, "tensorflow": tf.__version__}
    support.report(name, options, chunks, versions)


main()
