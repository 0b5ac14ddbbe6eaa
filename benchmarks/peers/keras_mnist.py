#!/usr/bin/env python3
"""The peers' workload in Keras on TensorFlow, by `fit`, `evaluate` and `predict`.

The tutorials' CNN has SGD(0.001), the MLP Adam(0.001). Keras' defaults stay, so the step is a tf.function; --jit compiles it with XLA.
"""

import sys

import support


def add_options(parser):
    support.add_work(parser)
    parser.add_argument("--jit", action="store_true", help="compile the step with XLA")


options = support.parse(__doc__, add_options)
support.set_tensorflow_up()
try:
    import keras
    import keras_model
except ImportError as error:
    sys.exit(f"keras_mnist: {error}; install the peers with benchmarks/peers/setup.sh")


class TimeChunks(keras.callbacks.Callback):
    """An epoch is a chunk. No per-step hook, so that Keras does not wait for each step."""

    def __init__(self, chunks):
        super().__init__()
        self.chunks = chunks

    def on_epoch_begin(self, epoch, logs=None):
        self.chunks.begin()

    def on_epoch_end(self, epoch, logs=None):
        self.chunks.end()


def main():
    keras_model.start(options)
    is_mlp = options.model == "mlp"
    model = keras_model.make_mlp() if is_mlp else keras_model.make()
    optimizer = keras.optimizers.Adam if is_mlp else keras.optimizers.SGD
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=optimizer(learning_rate=support.RATE),
        metrics=["accuracy"],
        jit_compile=True if options.jit else "auto",
    )
    chunks = support.Chunks()
    count = (options.warmup + options.steps) // support.CHUNK
    if options.work == "fit":
        model.fit(
            keras_model.data(options),
            epochs=count,
            steps_per_epoch=support.CHUNK,
            callbacks=[TimeChunks(chunks)],
            verbose=0,
        )
    else:
        data = keras_model.data_in_order(options)
        work = model.evaluate if options.work == "evaluate" else model.predict
        for _ in range(count):
            chunks.begin()
            work(data, verbose=0)
            chunks.end()
    name = "keras-jit" if options.jit else "keras"
    support.report(name, options, chunks, keras_model.versions())


main()
