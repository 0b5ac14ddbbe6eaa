"""Steps a second with two workers and one parameter server on this machine: lockstep's mnist_parameter_server (synchronous
and asynchronous) and TensorFlow's ParameterServerStrategy (asynchronous), on the tutorials' CNN with 64 images a step.

    pip install tensorflow-cpu
    python3 benchmarks/peers/parameter_server.py --data DIR        # --bin build/release/bin

In each round the programs run one after the other. TensorFlow's coordinator schedules steps on both workers as its guide does
(ClusterCoordinator); Keras 3 has no fit for this strategy, so its step is a tf.function over variables of the strategy.
"""

import argparse
import json
import multiprocessing
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import support

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def serve(cluster, job, index):
    """A worker or a server of TensorFlow's job."""
    import tensorflow as tf
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    server = tf.distribute.Server(tf.train.ClusterSpec(cluster), job_name=job, task_index=index, protocol="grpc")
    server.join()


def tensorflow_steps(steps, batch, result):
    """The coordinator; puts the seconds of `steps` steps."""
    *workers, server = support.free_addresses(3)
    cluster = {"worker": workers, "ps": [server]}
    context = multiprocessing.get_context("spawn")
    servers = [context.Process(target=serve, args=(cluster, job, i), daemon=True)
               for job in cluster for i in range(len(cluster[job]))]
    for server in servers:
        server.start()
    import tensorflow as tf
    spec = tf.train.ClusterSpec(cluster)
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(spec, rpc_layer="grpc")
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        def variable(*shape):
            return tf.Variable(tf.random.stateless_normal(shape, (1, 2), stddev=0.05))
        kernel, bias = variable(3, 3, 1, 32), variable(32)
        hidden, hidden_bias = variable(5408, 64), variable(64)
        output, output_bias = variable(64, 10), variable(10)
        variables = [kernel, bias, hidden, hidden_bias, output, output_bias]

    @tf.function
    def data():
        images = tf.random.stateless_uniform((6400, 28, 28, 1), (3, 4))
        labels = tf.random.stateless_uniform((6400,), (5, 6), 0, 10, tf.int32)
        return tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(6400).repeat().batch(batch).prefetch(2)

    @tf.function
    def step(iterator):
        x, y = next(iterator)
        with tf.GradientTape() as tape:
            h = tf.nn.relu(tf.nn.conv2d(x, kernel, 1, "VALID") + bias)
            h = tf.reshape(tf.nn.max_pool2d(h, 2, 2, "VALID"), (-1, 5408))
            h = tf.nn.relu(tf.matmul(h, hidden) + hidden_bias)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(y, tf.matmul(h, output) + output_bias))
        for v, g in zip(variables, tape.gradient(loss, variables)):
            v.assign_sub(0.001 * g)
        return loss

    iterator = iter(coordinator.create_per_worker_dataset(data))
    for _ in range(20):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    start = time.perf_counter()
    for _ in range(steps):
        coordinator.schedule(step, args=(iterator,))
    coordinator.join()
    result.put(time.perf_counter() - start)
    result.close()
    result.join_thread()
    for server in servers:
        server.kill()
    os._exit(0)


def peer(steps, batch):
    context = multiprocessing.get_context("spawn")
    result = context.Queue()
    process = context.Process(target=tensorflow_steps, args=(steps, batch, result))
    process.start()
    seconds = result.get(timeout=300)
    process.join()
    return seconds / steps * 1000


def ours(binaries, data, steps, program, servers, *options):
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([binaries / "lockstep-run", "-n", "2", *servers, binaries / program, "--data", data, "--epochs", "1",
                        "--steps-per-epoch", str(steps), "--quiet", "--report", report, *options], check=True, capture_output=True,
                       env={**os.environ, "LOCKSTEP_TRANSPORT": os.environ.get("LOCKSTEP_TRANSPORT", "auto")})
        return json.loads(report.read_text())["step_ms"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=REPOSITORY / "build/release/bin")
    parser.add_argument("--data", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    rows = {"lockstep, 2 workers, 1 server": [], "lockstep, the same, asynchronous": [],
            "lockstep, 2 workers, MultiWorkerMirrored": [], "TensorFlow, 2 workers, 1 server": []}
    for _ in range(options.rounds):
        for name, measure in zip(rows, (
                lambda: ours(options.bin, options.data, options.steps, "mnist_parameter_server", ["--ps", "1"]),
                lambda: ours(options.bin, options.data, options.steps, "mnist_parameter_server", ["--ps", "1"], "--mode", "async"),
                lambda: ours(options.bin, options.data, options.steps, "mnist_multi_worker", []),
                lambda: peer(options.steps, 64))):
            rows[name].append(measure())
    first = statistics.median(rows["lockstep, 2 workers, 1 server"])
    print("| program | median, ms a step | min | steps a second | / lockstep's server |\n|---|--:|--:|--:|--:|")
    for name, times in rows.items():
        middle = statistics.median(times)
        print(f"| {name} | {middle:.2f} | {min(times):.2f} | {1000 / middle:.0f} | {middle / first:.2f} |")


if __name__ == "__main__":
    sys.exit(main())
