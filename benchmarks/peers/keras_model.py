"""The shared part of the programs of Keras on TensorFlow: the models and their data."""

import keras
import numpy
import tensorflow as tf

import support


def start(options):
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    keras.utils.set_random_seed(1)


def data(options):
    images, labels = support.images_and_labels(numpy)

    def scale(image, label):
        return tf.cast(image, tf.float32) / 255, label

    return (
        tf.data.Dataset.from_tensor_slices((images[..., None], labels))
        .map(scale)
        .cache()
        .shuffle(10_000)
        .repeat()
        .batch(options.batch)
    )


def data_in_order(options):
    """The first examples of a chunk's number, as the input of `evaluate` and `predict`."""
    count = support.CHUNK * options.batch
    images, labels = support.images_and_labels(numpy)
    images = (images[:count, ..., None] / 255).astype(numpy.float32)
    return tf.data.Dataset.from_tensor_slices((images, labels[:count])).batch(options.batch)


def make_mlp():
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Flatten(),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(512, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def make():
    return keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            keras.layers.Conv2D(32, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(64, activation="relu"),
            keras.layers.Dense(10),
        ]
    )


def versions():
    return {"keras": keras.__version__, "tensorflow": tf.__version__}
