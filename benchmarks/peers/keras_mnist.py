#!/usr/bin/env python3
"""The seed step in Keras on TensorFlow: the tutorials' CNN, SGD(0.001), trained by `fit`.

Keras' defaults stay, so the step is a tf.function; --jit compiles it with XLA.
"""

import sys

import support


def add_options(parser):
    parser.add_argument("--jit", action="store_true", help="compile the step with XLA")


options = support.parse(__doc__, add_options)
support.set_tensorflow_up()
try:
    import keras
    import keras_model
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
    keras_model.start(options)
    model = keras_model.make()
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=keras.optimizers.SGD(learning_rate=support.RATE),
        metrics=["accuracy"],
        jit_compile=True if options.jit else "auto",
    )
    chunks = support.Chunks()
    model.fit(
        keras_model.data(options),
        epochs=(options.warmup + options.steps) // support.CHUNK,
        steps_per_epoch=support.CHUNK,
        callbacks=[TimeChunks(chunks)],
        verbose=0,
    )
    name = "keras-jit" if options.jit else "keras"
    support.report(name, options, chunks, keras_model.versions())


main()
