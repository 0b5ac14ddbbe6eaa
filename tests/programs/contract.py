"""The contract of the programs: command line, report, exit codes, files.

Runs the programs in $LOCKSTEP_BIN as a user would, with data that it makes itself.
"""

import gzip
import hashlib
import itertools
import json
import math
import os
import pathlib
import re
import resource
import signal
import struct
import subprocess
import tempfile
import time
import unittest
import zipfile

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"])
ROOT = pathlib.Path(__file__).resolve().parents[2]
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's `&` ignores SIGINT, also for what is started here
NOT_EXPORTED = {"Masking", "TimeDistributed"}  # layers without a form for other frameworks
NAMES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


def run(program, *arguments, cwd=None, timeout=300, env=None):
    return subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=timeout, env=env)


def idx(shape, data):
    return struct.pack(">HBB", 0, 8, len(shape)) + b"".join(struct.pack(">I", n) for n in shape) + data


def images(count, size=28):
    return idx((count, size, size), bytes((7 * i + i // 784) % 256 for i in range(count * size * size)))


def labels(count, first=None):
    values = [i % 10 for i in range(count)]
    if first is not None:
        values[0] = first
    return idx((count,), bytes(values))


def safetensors(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    return {name: (entry, data[8 + size :][slice(*entry["data_offsets"])]) for name, entry in header.items()}


def write_safetensors(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def data(self, **replaced):
        """A small MNIST folder; `replaced` are file contents by index, None leaves the file out."""
        folder = self.dir / "data"
        folder.mkdir()
        contents = [images(130), labels(130), images(40), labels(40)]
        for i, content in enumerate(contents):
            content = replaced.get(f"file{i}", content)
            if content is not None:
                (folder / NAMES[i]).write_bytes(content)
        return folder

    def report(self, program, *arguments, code=0):
        path = self.dir / "report.json"
        done = run(program, "--report", path, *arguments)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads(path.read_text()), done


class Report(Case):
    def test_mnist_reports_each_step_and_epoch(self):
        report, done = self.report("mnist", "--data", self.data(), "--epochs", 2, "--validate", "--threads", 1, "--quiet")
        self.assertEqual(done.stdout, "")
        expected = {"program": "mnist", "strategy": "one_device", "device": "cpu", "precision": "float32", "threads": 1,
                    "replicas": 1, "parameters": 347146, "trainable_parameters": 347146, "batch": 64, "first_step": 0,
                    "steps": 6, "seed": 1}
        self.assertEqual({key: report[key] for key in expected}, expected)
        self.assertEqual(len(report["step_loss"]), 6)
        self.assertEqual(len(report["step_accuracy"]), 6)
        self.assertEqual([sorted(e) for e in report["epochs"]],
                         [["accuracy", "loss", "seconds", "val_accuracy", "val_loss"]] * 2)
        # The epoch's loss is the mean over examples: batches of 64, 64 and 2.
        loss = sum(n * v for n, v in zip((64, 64, 2), report["step_loss"])) / 130
        self.assertAlmostEqual(report["epochs"][0]["loss"], loss, places=6)
        self.assertEqual(sorted(report["step_ms"]), ["median", "min", "p90"])
        self.assertGreater(report["peak_bytes"]["planned"], 2 * 4 * 347146)
        self.assertGreater(report["peak_bytes"]["resident"], report["peak_bytes"]["planned"])
        self.assertNotIn("error", report)

    def test_saved_weights_have_keras_names_and_the_reported_digest(self):
        weights = self.dir / "w.safetensors"
        report, _ = self.report("mnist", "--data", self.data(), "--epochs", 1, "--save", weights, "--quiet")
        tensors = safetensors(weights)
        self.assertEqual({n: e["shape"] for n, (e, _) in tensors.items()},
                         {"conv2d/kernel": [3, 3, 1, 32], "conv2d/bias": [32], "dense/kernel": [5408, 64],
                          "dense/bias": [64], "dense_1/kernel": [64, 10], "dense_1/bias": [10]})
        self.assertEqual({e["dtype"] for e, _ in tensors.values()}, {"F32"})
        digest = hashlib.sha256(b"".join(tensors[n][1] for n in sorted(tensors, key=str.encode))).hexdigest()
        self.assertEqual(report["weights_sha256"], digest)
        self.assertEqual(report["replica_weights_sha256"], [digest])

    def test_the_architecture_is_next_to_the_weights(self):
        data = self.data()
        for weights, architecture in (("w.safetensors", "w.json"), ("w.st", "w.st.json")):
            path = self.dir / weights
            self.report("mnist", "--data", data, "--epochs", 1, "--save", path, "--quiet")
            found = json.loads((self.dir / architecture).read_text("utf-8"))
            self.assertEqual((found["format"], found["format_version"]), ("lockstep.architecture", 1))
            self.assertEqual([layer["class_name"] for layer in found["layers"]],
                             ["Conv2D", "ReLU", "MaxPooling2D", "Flatten", "Dense", "ReLU", "Dense"])
            parameters = {p["name"]: p["shape"] for layer in found["layers"] for p in layer["parameters"]}
            self.assertEqual(parameters, {n: e["shape"] for n, (e, _) in safetensors(path).items()})

    def test_export_onnx_writes_the_weights_of_the_end(self):
        weights, onnx = self.dir / "w.safetensors", self.dir / "w.onnx"
        self.report("mnist", "--data", self.data(), "--epochs", 1, "--save", weights, "--export-onnx", onnx, "--quiet")
        written = onnx.read_bytes()
        for name in ("dense/kernel", "dense_1/bias"):  # the others are transposed
            self.assertIn(safetensors(weights)[name][1], written)
        for text in (b"lockstep", b"Conv", b"MaxPool", b"MatMul", b"input", b"output"):
            self.assertIn(text, written)

    def test_a_profile_is_written_and_changes_no_weight(self):
        options = "--data", self.data(), "--epochs", 1, "--threads", 1, "--quiet"
        plain, _ = self.report("mnist", *options)
        path = self.dir / "profile.json"
        profiled, done = self.report("mnist", *options, "--profile", path)
        self.assertEqual(profiled["weights_sha256"], plain["weights_sha256"])
        self.assertEqual(done.stdout, "")
        self.assertIn("A step without instrumentation", done.stderr)
        profile = json.loads(path.read_text())
        layers = {(row["layer"], row["pass"]) for row in profile["rows"]}
        self.assertIn(("dense_1", "backward"), layers)

    def test_training_goes_on_from_saved_weights(self):
        data, weights = self.data(), self.dir / "w.safetensors"
        options = ["--data", data, "--no-shuffle", "--threads", 1, "--quiet"]
        both, _ = self.report("mnist", *options, "--epochs", 2)
        self.report("mnist", *options, "--epochs", 1, "--save", weights)
        second, _ = self.report("mnist", *options, "--epochs", 1, "--init", weights, "--seed", 9)
        self.assertEqual(second["step_loss"], both["step_loss"][3:])
        self.assertEqual(second["weights_sha256"], both["weights_sha256"])

    def test_a_run_is_a_function_of_the_seed(self):
        options = ["--data", self.data(), "--epochs", 1, "--threads", 1, "--quiet"]
        a, b, c = (self.report("mnist", *options, "--seed", s)[0]["weights_sha256"] for s in (1, 1, 2))
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)

    def test_skip_take_and_steps(self):
        data = self.data()
        skipped, _ = self.report("mnist", "--data", data, "--skip", 64, "--take", 64, "--no-shuffle", "--epochs", 1, "--quiet")
        self.assertEqual(skipped["steps"], 1)
        steps, _ = self.report("mnist", "--data", data, "--epochs", 3, "--steps-per-epoch", 4, "--quiet")
        self.assertEqual((steps["steps"], len(steps["epochs"])), (12, 3))  # 130 images, repeated
        self.assertTrue(all(math.isfinite(v) for v in steps["step_loss"]))

    def test_each_optimizer_trains(self):
        data = self.data()
        digests = {self.report("mnist", "--data", data, "--epochs", 1, "--optimizer", o, "--quiet")[0]["weights_sha256"]
                   for o in ("sgd", "momentum", "adam")}
        self.assertEqual(len(digests), 3)

    def test_mixed_precision_trains_as_float32_nearly_or_says_that_it_cannot(self):
        options = ("--data", self.data(), "--epochs", 2, "--learning-rate", 0.01, "--quiet")
        whole, _ = self.report("mnist", *options)
        half = run("mnist", "--precision", "mixed_bfloat16", "--report", self.dir / "r", *options)
        if "no instructions for bfloat16" in half.stderr:
            self.assertEqual(half.returncode, 1)
            self.skipTest(half.stderr.strip())
        self.assertEqual(half.returncode, 0, half.stderr)
        half = json.loads((self.dir / "r").read_text())
        self.assertEqual((half["device"], half["precision"]), ("cpu", "mixed_bfloat16"))
        self.assertEqual(len(half["step_loss"]), len(whole["step_loss"]))
        for a, b in zip(half["step_loss"], whole["step_loss"]):
            self.assertAlmostEqual(a, b, delta=0.02 * b)
        self.assertNotEqual(half["step_loss"], whole["step_loss"])
        for limit in ("AVX512_CORE", "AVX2"):
            done = run("mnist", "--precision", "mixed_bfloat16", *options, env={**os.environ, "ONEDNN_MAX_CPU_ISA": limit})
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
            self.assertIn("ONEDNN_MAX_CPU_ISA", done.stderr)
        done = run("linear_regression", "--precision", "mixed_bfloat16")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--precision mixed_bfloat16", done.stderr)

    def test_gzipped_files_give_the_same_run(self):
        data = self.data()
        plain, _ = self.report("mnist", "--data", data, "--epochs", 1, "--threads", 1, "--quiet")
        for name in NAMES:
            (data / (name + ".gz")).write_bytes(gzip.compress((data / name).read_bytes()))
            (data / name).unlink()
        packed, _ = self.report("mnist", "--data", data, "--epochs", 1, "--threads", 1, "--quiet")
        self.assertEqual(plain["weights_sha256"], packed["weights_sha256"])

    def test_linear_regression_learns(self):
        report, _ = self.report("linear_regression", "--quiet", "--epochs", 50)
        self.assertEqual((report["batch"], report["steps"], report["parameters"]), (80, 250, 2))
        self.assertLess(report["epochs"][-1]["loss"], 0.02 * report["epochs"][0]["loss"])
        self.assertNotIn("step_accuracy", report)


class Sequences(Case):
    """sentiment and forecast."""

    def npz(self, **arrays):
        """numpy.savez of 32-bit integers: (shape, values) by name."""
        path = self.dir / "data.npz"
        with zipfile.ZipFile(path, "w") as file:
            for name, (shape, values) in arrays.items():
                text = repr({"descr": "<i4", "fortran_order": False, "shape": shape}).ljust(117).encode() + b"\n"
                file.writestr(f"{name}.npy", b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text
                              + struct.pack(f"<{len(values)}i", *values))
        return path

    def test_sentiment_learns_and_is_a_function_of_the_seed(self):
        report, done = self.report("sentiment", "--epochs", 3, "--validate", "--quiet")
        expected = {"program": "sentiment", "strategy": "one_device", "batch": 32, "steps": 750, "seed": 1,
                    "parameters": 32 * 1000 + 2 * 128 * (32 + 32 + 1) + 65}
        self.assertEqual({key: report[key] for key in expected}, expected)
        self.assertEqual([sorted(e) for e in report["epochs"]],
                         [["accuracy", "loss", "seconds", "val_accuracy", "val_loss"]] * 3)
        self.assertGreater(report["epochs"][-1]["val_accuracy"], 0.9)
        self.assertEqual((done.stdout, len(report["step_accuracy"])), ("", 750))
        runs = [self.report("sentiment", "--take", 64, "--epochs", 1, "--quiet", *seed)[0] for seed in ([], [], ["--seed", 2])]
        self.assertEqual(runs[0]["weights_sha256"], runs[1]["weights_sha256"])
        self.assertNotEqual(runs[0]["step_loss"], runs[2]["step_loss"])

    def test_sentiment_reads_npz(self):
        words = [i % 1000 for i in range(6 * 40)]
        x, y = ((6, 40), words), ((6,), [0, 1] * 3)
        report, _ = self.report("sentiment", "--data", self.npz(x_train=x, y_train=y), "--epochs", 2, "--batch", 4, "--quiet")
        self.assertEqual(report["steps"], 4)
        self.report("sentiment", "--data", self.npz(x_train=x, y_train=y, x_test=x, y_test=y), "--epochs", 1, "--validate", "--quiet")
        for name, arrays, says in (("range", {"x_train": (x[0], [1000, *words[1:]])}, "element 0 is 1000"),
                                   ("label", {"y_train": (y[0], [2] * 6)}, "element 0 is 2"),
                                   ("steps", {"x_train": ((6, 39), words[6:])}, "(39)"),
                                   ("test", {}, "x_test")):
            with self.subTest(name):
                path = self.npz(**{"x_train": x, "y_train": y, **arrays})
                report, done = self.report("sentiment", "--data", path, "--validate", "--quiet", code=1)
                self.assertIn(says, report["error"])
                self.assertIn(str(path), done.stderr)

    def test_forecast_is_better_than_the_last_value(self):
        report, done = self.report("forecast")
        self.assertEqual((report["steps"], report["parameters"]), (750, 3 * 32 * (1 + 32 + 2) + 33))
        self.assertNotIn("step_accuracy", report)
        error, naive = map(float, re.search(r"last 600 values: (\S+); .*: (\S+)\n$", done.stdout).groups())
        self.assertLess(error, 0.25 * naive)
        self.assertGreater(error, 0.09)  # the variance of the noise
        self.assertEqual(self.report("forecast", "--quiet")[0]["weights_sha256"], report["weights_sha256"])

    def test_forecast_reads_the_last_column_of_a_csv_file(self):
        series = [math.sin(i / 3) + i % 5 for i in range(200)]
        path = self.dir / "series.csv"
        path.write_text("day,value\n" + "".join(f"2026-{i},{v!r}\n" for i, v in enumerate(series)))
        report, done = self.report("forecast", "--data", path, "--epochs", 2, "--validate")
        self.assertEqual(report["steps"], 2 * math.ceil((160 - 24) / 32))
        naive = sum((series[i] - series[i - 1]) ** 2 for i in range(160, 200)) / 40
        self.assertIn(f"of the last value as forecast: {naive:.4f}\n", done.stdout)
        # The loss is of values scaled by mean and deviation of the first 160.
        mean = sum(series[:160]) / 160
        variance = sum((v - mean) ** 2 for v in series[:160]) / 160
        error = float(re.search(r"last 40 values: (\S+);", done.stdout)[1])
        self.assertAlmostEqual(report["epochs"][-1]["val_loss"] * variance, error, delta=1e-4)
        for text, says in (("day,value\n1,2\n2,x\n", "line 3, column 2 ('value'): 'x'"), ("day,value\n1\n", "line 2"),
                           ("1\n2\n", "line 1"), ("value\n1\n", "at least 32"), ("value\n" + "3\n" * 99, "constant"), ("", "is empty")):
            with self.subTest(text[:20]):
                path.write_text(text)
                report, done = self.report("forecast", "--data", path, code=1)
                self.assertIn(says, done.stderr)
                self.assertIn(str(path), report["error"])


class Replicas(Case):
    """Programs on Mirrored."""

    def digest(self, report):
        """The one that all replicas have."""
        self.assertEqual(set(report["replica_weights_sha256"]), {report["weights_sha256"]})
        return report["weights_sha256"]

    def test_three_replicas_train_as_one_device(self):
        # 130 images: batches of 64, 64 and 2, so that the third replica has no example in the last one.
        options = ["--take", 130, "--epochs", 2, "--threads", 1, "--learning-rate", 0.05, "--quiet"]
        one, _ = self.report("mnist", *options)
        three, done = self.report("mnist_mirrored", *options, "--replicas", 3)
        self.assertEqual(done.stdout, "")
        expected = {"program": "mnist_mirrored", "strategy": "mirrored", "device": "cpu", "precision": "float32",
                    "threads": 1, "replicas": 3, "parameters": 347146, "trainable_parameters": 347146, "batch": 64,
                    "first_step": 0, "steps": 6, "seed": 1}
        self.assertEqual({key: three[key] for key in expected}, expected)
        self.assertEqual(set(three) - {"update", "wire"}, set(one))
        self.assertLess(one["step_loss"][-2], 0.98 * one["step_loss"][0])
        for key in ("step_loss", "step_accuracy"):
            self.assertEqual(len(three[key]), 6)
            for a, b in zip(one[key], three[key]):
                self.assertAlmostEqual(a, b, delta=1e-6 * abs(a))
        self.assertEqual((len(one["replica_weights_sha256"]), len(three["replica_weights_sha256"])), (1, 3))
        self.digest(three)
        self.assertGreater(three["peak_bytes"]["planned"], 3 * 2 * 4 * 347146)
        self.assertGreater(three["peak_bytes"]["resident"], three["peak_bytes"]["planned"])

    def test_three_replicas_evaluate_as_one_device(self):
        options = ["--data", self.data(), "--epochs", 2, "--validate", "--threads", 1, "--quiet"]
        one, _ = self.report("mnist", *options)
        three, _ = self.report("mnist_mirrored", *options, "--replicas", 3)
        self.assertEqual(len(three["epochs"]), 2)
        for a, b in zip(one["epochs"], three["epochs"]):
            for key in ("loss", "accuracy", "val_loss", "val_accuracy"):
                self.assertAlmostEqual(a[key], b[key], delta=1e-6 * abs(a[key]))

    def test_more_replicas_than_examples(self):
        data = self.data()
        options = ["--data", data, "--take", 3, "--batch", 1, "--epochs", 1, "--threads", 1, "--quiet"]
        one, _ = self.report("mnist", *options)
        five, _ = self.report("mnist_mirrored", *options, "--replicas", 5)
        for a, b in zip(one["step_loss"], five["step_loss"], strict=True):
            self.assertAlmostEqual(a, b, delta=1e-6 * abs(a))
        self.digest(five)

    def test_one_replica_is_the_default(self):
        for program in ("mnist_mirrored", "linear_regression"):
            with self.subTest(program):
                report, _ = self.report(program, "--epochs", 1, "--steps-per-epoch", 2, "--quiet")
                self.assertEqual((report["strategy"], report["replicas"]), ("mirrored", 1))
                self.assertEqual(report["threads"], len(os.sched_getaffinity(0)))
                self.assertEqual(len(report["replica_weights_sha256"]), 1)

    def test_replicas_share_the_cores(self):
        report, _ = self.report("linear_regression", "--replicas", 2, "--epochs", 1, "--quiet")
        self.assertEqual(report["threads"], max(1, len(os.sched_getaffinity(0)) // 2))

    def test_virtual_shards_give_equal_bits_for_1_2_and_4_replicas(self):
        options = ["--data", self.data(), "--epochs", 2, "--virtual-shards", 4, "--optimizer", "adam", "--quiet"]
        digests, losses = set(), set()
        for program, *more in (["mnist"], ["mnist", "--threads", 1], ["mnist_mirrored"],
                               *(["mnist_mirrored", "--replicas", n] for n in (2, 4))):
            with self.subTest(program=program, more=more):
                report, _ = self.report(program, *options, *more)
                self.assertEqual(report["threads"], 1)
                digests.add(self.digest(report))
                losses.add(tuple(report["step_loss"]))
        self.assertEqual((len(digests), len(losses)), (1, 1))

    def test_linear_regression_learns_on_any_number_of_replicas(self):
        one, _ = self.report("linear_regression", "--quiet", "--epochs", 50)
        for replicas in (2, 3, 7):
            with self.subTest(replicas=replicas):
                report, _ = self.report("linear_regression", "--quiet", "--epochs", 50, "--replicas", replicas)
                self.assertEqual((report["replicas"], report["steps"]), (replicas, 250))
                # float32 weights that differ in the last bit: the loss is a square, its penalty is not.
                for a, b in zip(one["step_loss"], report["step_loss"], strict=True):
                    self.assertAlmostEqual(a, b, delta=1e-6)
                self.digest(report)

    def test_verification_changes_nothing(self):
        data = self.data()
        for program, *more in (["mnist"], ["mnist_mirrored", "--replicas", 2]):
            with self.subTest(program):
                options = ["--data", data, "--epochs", 1, "--threads", 1, "--quiet", *more]
                plain, _ = self.report(program, *options)
                verified, _ = self.report(program, *options, "--verify-every", 1)
                self.assertEqual(self.digest(plain), self.digest(verified))

    def test_executions_of_several_steps_change_the_report_only(self):
        options = ["--data", self.data(), "--epochs", 2, "--threads", 1, "--quiet"]
        plain, _ = self.report("mnist", *options)
        together, _ = self.report("mnist", *options, "--steps-per-execution", 2)
        self.assertEqual(self.digest(plain), self.digest(together))
        self.assertEqual(together["epochs"][1]["loss"], plain["epochs"][1]["loss"])
        self.assertEqual(plain["steps"], together["steps"])
        # Three steps an epoch: the second and the third are seen.
        self.assertEqual(together["step_loss"], [plain["step_loss"][i] for i in (1, 2, 4, 5)])

    def test_train_begin_counts_the_replicas(self):
        done = run("mnist_mirrored", "--data", self.data(), "--epochs", 1, "--replicas", 2, "--progress", "json")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([e["event"] for e in events], ["train_begin"] + ["step"] * 3 + ["epoch_end", "train_end"])
        self.assertEqual((events[0]["rank"], events[0]["replicas"], events[0]["steps"]), (0, 2, 3))
        self.assertIn("2 replicas; of a batch of 64 examples each gets 32", done.stderr)

    def test_an_error_in_the_data_ends_all_replicas(self):
        data = self.data(file1=labels(130, first=10))
        report, done = self.report("mnist_mirrored", "--replicas", 3, "--quiet", "--data", data, code=1)
        other_lines = [line for line in done.stderr.splitlines() if not line.startswith("lockstep: ")]
        self.assertEqual(len(other_lines), 1, done.stderr)  # apart from the log, which may warn about few cores
        self.assertIn("train-labels-idx1-ubyte", report["error"])

    def test_bad_options_give_exit_code_2_and_name_the_option(self):
        for program, *arguments in (
            ["mnist", "--replicas", 2],
            *(["mnist_mirrored", "--replicas", n] for n in ("0", "300", "257", "two", "02", "")),
            *(["linear_regression", "--replicas", n] for n in ("0", "300")),
            *([p, "--verify-every", n] for p in ("mnist", "mnist_mirrored", "linear_regression") for n in ("0", "x", "1.5")),
            *([p, "--virtual-shards", n] for p in ("mnist", "mnist_mirrored") for n in ("0", "3", "12", "8192", "x", "")),
            ["linear_regression", "--virtual-shards", 2],
            ["mnist_mirrored", "--virtual-shards", 2, "--replicas", 4],
            ["mnist_mirrored", "--virtual-shards", 4, "--replicas", 3],
            ["mnist_mirrored", "--virtual-shards", 4, "--replicas", 2, "--threads", 2],
            ["mnist", "--virtual-shards", 4, "--threads", 2],
            ["mnist", "--virtual-shards", 1, "--threads", 2],
        ):
            with self.subTest(program=program, arguments=arguments):
                report = self.dir / "report.json"
                done = run(program, *arguments, "--report", report)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                for option in {arguments[0], *arguments[-2::2]}:
                    self.assertIn(option, done.stderr)
                self.assertFalse(report.exists())
        self.assertIn("1 to 256", run("mnist_mirrored", "--replicas", 257).stderr)

    def test_version(self):
        cuda = [f"{name}_cuda" for name in ("mnist",) if (BIN / f"{name}_cuda").exists()]
        for program in ("mnist", "mnist_mirrored", "mnist_multi_worker", "linear_regression", "cifar10", "lockstep-run", *cuda):
            done = run(program, "--version")
            self.assertEqual((done.returncode, done.stderr), (0, ""), program)
            first, libraries = done.stdout.splitlines()
            header = (ROOT / "include/lockstep/core/version.hpp").read_text()
            numbers = [re.search(rf"LOCKSTEP_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
            self.assertEqual(first, "lockstep " + ".".join(numbers))
            found = dict(entry.split(" ") for entry in libraries.split(", "))
            self.assertTrue(all(re.match(r"\d+\.\d+", number) for number in found.values()), libraries)
            self.assertIn("fmt", found)
            self.assertEqual("Asio" in found, program == "mnist_multi_worker")
            self.assertEqual("CUDA" in found, program in cuda)
            self.assertEqual("oneDNN" in found, program not in (*cuda, "lockstep-run"))

    def test_help(self):
        for program, has in (("mnist", "--virtual-shards"), ("mnist_mirrored", "--virtual-shards"),
                             ("mnist_mirrored", "--replicas"), ("linear_regression", "--replicas"), ("mnist", "--verify-every")):
            self.assertIn(has, run(program, "--help").stdout)
        self.assertNotIn("--replicas", run("mnist", "--help").stdout)
        self.assertNotIn("--virtual-shards", run("linear_regression", "--help").stdout)


class Units(unittest.TestCase):
    def test_only_units_of_workers_read_the_headers_of_the_cluster(self):
        tree = BIN.parent
        units = {path.relative_to(tree).as_posix() for name in ("mnist", "cifar10")
                 for path in tree.glob(f"programs/CMakeFiles/{name}*.dir/{name}.cpp.o")}
        lines = subprocess.run(["ninja", "-C", tree, "-t", "deps", *sorted(units)], check=True, capture_output=True,
                               text=True).stdout.splitlines()
        reads, unit = set(), None
        for line in lines:
            if line and not line.startswith(" "):
                unit = line.partition(":")[0]
            elif line.endswith("lockstep/cluster.hpp"):
                reads.add(unit)
        workers = {unit for unit in units if re.search("_multi_worker_|_parameter_server_", unit)}
        self.assertTrue({"programs/CMakeFiles/mnist_multi_worker_sgd_float32.dir/mnist.cpp.o",
                         "programs/CMakeFiles/cifar10_multi_worker_20_float32.dir/cifar10.cpp.o"} <= workers, units)
        self.assertEqual(reads, workers)


class Progress(Case):
    def test_json_lines(self):
        done = run("mnist", "--data", self.data(), "--epochs", 1, "--progress", "json")
        events = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual([e["event"] for e in events], ["train_begin"] + ["step"] * 3 + ["epoch_end", "train_end"])
        self.assertEqual([e["step"] for e in events if e["event"] == "step"], [0, 1, 2])
        self.assertEqual((events[0]["rank"], events[0]["replicas"], events[0]["steps"]), (0, 1, 3))

    def test_plain_is_the_default_in_a_pipe(self):
        done = run("mnist", "--data", self.data(), "--epochs", 2)
        self.assertEqual(done.stdout.count("loss:"), 2)
        self.assertIn("Epoch 1/2", done.stdout)

    def test_drawn_digits_are_announced_when_training_begins(self):
        options = ("--epochs", 1, "--steps-per-epoch", 1)
        self.assertEqual(run("mnist", *options).stderr,
                         "lockstep: training on drawn digits; --data names a folder with real images\n")
        self.assertEqual(run("mnist", *options, "--quiet").stderr, "")
        self.assertEqual(run("mnist", *options, "--data", self.data()).stderr, "")

    def test_shown_images_are_those_of_the_file_with_predictions_and_labels(self):
        pixels = images(40)[16:]
        options = ("--data", self.data(), "--epochs", 1, "--show", 7)
        report, done = self.report("mnist", *options, "--progress", "plain")
        accuracy, lines = done.stdout.partition("test accuracy: ")[2].split(" %\n\n")
        self.assertAlmostEqual(float(accuracy), 100 * report["epochs"][-1]["val_accuracy"], delta=0.005)
        lines = lines.splitlines()
        self.assertEqual(len(lines), 2 * 8)  # seven lines of four pixels, and the captions
        for i in range(7):
            row, column = divmod(i, 5)
            left = 2 + 16 * column
            for y, x in itertools.product(range(28), range(28)):
                dots = ord(lines[8 * row + y // 4][left + x // 2]) - 0x2800
                bit = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]][y % 4][x % 2]
                self.assertEqual(dots & bit > 0, pixels[784 * i + 28 * y + x] >= 96, (i, y, x))
            caption = lines[8 * row + 7][left : left + 14].strip()
            predicted, _, label = caption.partition(", not ")
            self.assertEqual(label or predicted, str(i))
            self.assertNotEqual(label, predicted)
        self.assertEqual(run("mnist", *options, "--quiet").stdout, "")
        for line in run("mnist", *options, "--progress", "json").stdout.splitlines():
            json.loads(line)

    def test_a_few_epochs_of_adam_know_drawn_digits(self):
        done = run("mnist", "--optimizer", "adam", "--show", 10)  # `./dev mnist`
        self.assertGreater(float(done.stdout.partition("test accuracy: ")[2].split()[0]), 95)

    def test_quickstart_draws_digits_without_data(self):
        done = run("quickstart", cwd=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("data/mnist: folder not found; using drawn digits", done.stderr)
        self.assertEqual(done.stdout.count("loss:"), 3)


class BadCommandLine(Case):
    def test_exit_code_2_names_the_option(self):
        for option, values in {
            "--epochs": ["0", "-1", "1.5", "many", "", "010", "0x1", " 1", "1 ", "+1", "1e1", "2147483648",
                         "99999999999", "99999999999999999999"],
            "--steps-per-epoch": ["0", "-3", "", "18446744073709551616"],
            "--batch": ["0", "-64", "x", "064", "18446744073709551616"],
            "--learning-rate": ["0", "-0.1", "nan", "inf", "", "fast", " 0.1", "0.1x", "0x1p-3", "1e400", "1e-400"],
            "--seed": ["-1", "x", "0b1", "18446744073709551616"],
            "--skip": ["-1", "", "00", "18446744073709551616"],
            "--take": ["0", "-5", "18446744073709551616"],
            "--threads": ["0", "-2", "two", "1025"],
            "--optimizer": ["lion", ""],
            "--precision": ["float16", ""],
            "--progress": ["loud"],
            "--data": [""],
            "--save": [""],
            "--profile": [""],
            "--export-onnx": [""],
            "--init": [""],
            "--report": [""],
        }.items():
            for value in values:
                with self.subTest(option=option, value=value):
                    done = run("mnist", f"{option}={value}" if value.startswith("-") else option, *([] if value.startswith("-") else [value]))
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(option, done.stderr)
                    self.assertEqual(done.stdout, "")
        for arguments in (["--colour"], ["stray"], ["--resume"], ["--checkpoint-every", "5"], ["--checkpoint", ""]):
            with self.subTest(arguments=arguments):
                done = run("mnist", *arguments)
                self.assertEqual(done.returncode, 2)
                self.assertIn(arguments[0], done.stderr)
        self.assertEqual(run("linear_regression", "--data", ".").returncode, 2)

    def test_bounds_are_named_and_belong_to_the_range(self):
        for option, value, bounds in (("--epochs", "99999999999", "1 to 2147483647"), ("--threads", "1025", "1 to 1024"),
                                      ("--skip", "18446744073709551616", "0 to 18446744073709551615")):
            with self.subTest(option=option):
                self.assertIn(bounds, run("mnist", option, value).stderr)
        report, _ = self.report("mnist", "--data", self.data(), "--take", 2**64 - 1, "--seed", 2**64 - 1, "--epochs", 1,
                                "--learning-rate", "1e-3", "--quiet")
        self.assertEqual((report["steps"], report["seed"]), (3, 2**64 - 1))

    def test_the_report_and_the_weights_are_two_files(self):
        file = self.dir / "w"
        file.write_bytes(b"kept")
        (self.dir / "link").symlink_to(file)
        for option in ("--save", "--init"):
            for other in ("w", "./w", f"../{self.dir.name}/w", "link", "new"):
                with self.subTest(option=option, other=other):
                    done = run("mnist", option, self.dir / ("new" if other == "new" else "w"), "--report", other, cwd=self.dir)
                    self.assertEqual(done.returncode, 2, done.stderr)
                    self.assertIn(option, done.stderr)
                    self.assertIn("--report", done.stderr)
        self.assertEqual(file.read_bytes(), b"kept")
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), ["link", "w"])
        # A report r.json takes the place of the architecture of r.safetensors: see Signals.
        for arguments in (("--export-onnx", "w", "--report", "w"), ("--export-onnx", "w", "--save", "link"), ("--export-onnx", "a.json", "--save", "a.safetensors")):
            with self.subTest(arguments=arguments):
                done = run("mnist", *arguments, cwd=self.dir)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(arguments[0], done.stderr)
                self.assertIn("use two files", done.stderr)

    def test_help(self):
        done = run("mnist", "--help")
        self.assertEqual(done.returncode, 0)
        for option in ("--data", "--epochs", "--optimizer", "--report"):
            self.assertIn(option, done.stdout)


class BadFiles(Case):
    def fails(self, *arguments, expected_text):
        """Exit code 1, one line on stderr with all of `expected_text`, and a report with the error."""
        epochs = [] if "--epochs" in arguments else ["--epochs", 1]
        report, done = self.report("mnist", *epochs, "--quiet", *arguments, code=1)
        self.assertEqual(done.stdout, "")
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for text in expected_text:
            self.assertIn(str(text), done.stderr)
            self.assertIn(str(text), report["error"])
        self.assertEqual(sorted(p.name for p in self.dir.iterdir() if p.name.startswith("report")), ["report.json"])
        return report

    def test_data(self):
        whole = gzip.compress(images(130))
        for name, replaced, expected_text in [
            ("missing", {"file1": None}, ["train-labels-idx1-ubyte"]),
            ("empty", {"file0": b""}, ["train-images-idx3-ubyte"]),
            ("magic", {"file0": labels(130)}, ["train-images-idx3-ubyte"]),
            ("truncated", {"file0": images(130)[:-1]}, ["train-images-idx3-ubyte"]),
            ("trailing", {"file1": labels(130) + b"x"}, ["train-labels-idx1-ubyte"]),
            ("counts", {"file1": labels(129)}, ["129", "130"]),
            ("label", {"file1": labels(130, first=10)}, ["train-labels-idx1-ubyte", "10"]),
            ("size", {"file0": images(130, size=20)}, ["(20, 20, 1)", "(28, 28, 1)"]),
            ("gzip", {"file0": None, "gz": whole[: len(whole) // 2]}, ["train-images-idx3-ubyte.gz"]),
        ]:
            with self.subTest(name):
                self.setUp()
                data = self.data(**replaced)
                if "gz" in replaced:
                    (data / (NAMES[0] + ".gz")).write_bytes(replaced["gz"])
                report = self.fails("--data", data, expected_text=expected_text)
                self.assertEqual(report.get("steps", 0), 0)
        for name, replaced, more, expected_text in [
            ("no images", {"file0": images(0), "file1": labels(0)}, [], ["train-images-idx3-ubyte"]),
            ("no test images", {"file2": images(0), "file3": labels(0)}, ["--validate"], ["t10k-images-idx3-ubyte"]),
            ("size", {"file0": images(130, size=20)}, [], ["train-images-idx3-ubyte", "(20, 20, 1)", "(28, 28, 1)"]),
            ("test size", {"file2": images(40, size=20)}, ["--validate"],
             ["t10k-images-idx3-ubyte", "(20, 20, 1)", "(28, 28, 1)"]),
        ]:
            with self.subTest(name):
                self.setUp()
                data = self.data(**replaced)
                report = self.fails("--data", data, *more, expected_text=[data, "--data", *expected_text])
                self.assertNotIn("--skip", report["error"])
                self.assertNotIn("Input<", report["error"])
                self.assertEqual(report.get("steps", 0), 0)
        self.setUp()
        self.fails("--data", self.dir / "nowhere", expected_text=["nowhere"])
        self.fails("--data", self.data(), "--skip", 130, expected_text=["--skip 130"])

    def test_test_files_are_read_only_with_validate(self):
        data = self.data(file2=b"broken")
        self.report("mnist", "--epochs", 1, "--quiet", "--data", data)
        self.fails("--data", data, "--validate", expected_text=["t10k-images-idx3-ubyte"])

    def test_weights(self):
        good = self.dir / "good.safetensors"
        self.report("mnist", "--data", self.data(), "--epochs", 1, "--quiet", "--save", good)
        tensors = {n: (e["dtype"], e["shape"], d) for n, (e, d) in safetensors(good).items()}
        kernel = tensors["dense_1/kernel"]
        for name, change, expected_text in [
            ("missing", {"dense_1/kernel": None}, ["dense_1/kernel"]),
            ("extra", {"dense_2/kernel": kernel}, ["dense_2/kernel"]),
            ("shape", {"dense_1/kernel": ("F32", [10, 64], kernel[2])}, ["dense_1/kernel", "(64, 10)"]),
            ("dtype", {"dense_1/kernel": ("F64", [64, 10], kernel[2] * 2)}, ["dense_1/kernel", "F64"]),
        ]:
            with self.subTest(name):
                bad = self.dir / f"{name}.safetensors"
                write_safetensors(bad, {n: t for n, t in {**tensors, **change}.items() if t is not None})
                self.fails("--data", self.dir / "data", "--init", bad, expected_text=[bad, *expected_text])
        broken = self.dir / "broken.safetensors"
        broken.write_bytes(good.read_bytes()[:-7])
        self.fails("--data", self.dir / "data", "--init", broken, expected_text=[broken])
        self.fails("--data", self.dir / "data", "--init", self.dir / "none", expected_text=["none"])

    def test_paths_are_tried_before_training(self):
        data = self.data()
        for path in (self.dir / "no" / "such" / "w", self.dir):
            started = time.monotonic()
            self.fails("--data", data, "--epochs", 100000, "--save", path, expected_text=[path])
            self.assertLess(time.monotonic() - started, 60)
        done = run("mnist", "--data", data, "--report", self.dir / "no" / "r.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("r.json", done.stderr)

    def test_a_path_that_stands_for_an_open_file_is_refused_before_training(self):
        data = self.data()
        log = self.dir / "run.log"
        for path in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
            with self.subTest(path), open(log, "w") as out:
                done = subprocess.run([BIN / "mnist", "--data", data, "--epochs", "100000", "--quiet", "--save", path], stdout=out,
                                      stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual(done.returncode, 1, done.stderr)
                self.assertIn(f"{path}: it stands for a file that this process has open", done.stderr)
        self.assertEqual(log.read_text(), "")

    def test_weights_beyond_the_limit_of_file_sizes_are_an_error(self):
        path = self.dir / "limited" / "w.safetensors"
        path.parent.mkdir()
        done = subprocess.run(["bash", "-c", 'ulimit -f 100; exec "$@"', "-", BIN / "mnist", "--data", self.data(), "--epochs", "1",
                               "--quiet", "--save", path], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(f"{path}: cannot be written (File too large); raise the limit of file sizes (ulimit -f)", done.stderr)
        self.assertEqual(list(path.parent.iterdir()), [])


# The address sanitizer ends a program that requests too much memory before the program can report it.
@unittest.skipIf(b"__asan_init" in (BIN / "mnist").read_bytes(), "built with the address sanitizer")
class Memory(Case):
    def fails_for_want_of_memory(self, program, *arguments, prepare=None):
        path = self.dir / "report.json"
        done = subprocess.run([BIN / program, "--quiet", "--epochs", "1", "--report", path, *map(str, arguments)],
                              capture_output=True, text=True, timeout=60, preexec_fn=prepare)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for text in ("memory", "--batch"):
            self.assertIn(text, done.stderr)
            self.assertIn(text, json.loads(path.read_text())["error"])

    def test_a_batch_beyond_the_address_space(self):
        limit = 6 << 30

        def prepare():
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        if hard != resource.RLIM_INFINITY and hard < limit:
            self.skipTest("the address space is limited already")
        self.fails_for_want_of_memory("mnist", "--threads", 1, "--batch", 50_000_000, "--steps-per-epoch", 1, prepare=prepare)

    def test_a_batch_beyond_any_machine(self):
        for program in ("mnist", "linear_regression"):
            with self.subTest(program):
                self.fails_for_want_of_memory(program, "--threads", 1, "--batch", 10**12, "--steps-per-epoch", 1)


class Signals(Case):
    def test_sigint_and_sigterm_save_and_give_their_code(self):
        data = self.data()
        for program, *more in (["mnist"], ["mnist_mirrored", "--replicas", "3", "--threads", "1"]):
            for number, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
                with self.subTest(program=program, signal=number):
                    weights, path = self.dir / f"{program}{number}.safetensors", self.dir / f"{program}{number}.json"
                    child = subprocess.Popen([BIN / program, "--data", data, "--epochs", "1000000", "--progress", "json",
                                              "--save", weights, "--report", path, *more],
                                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
                    for line in child.stdout:
                        if '"step"' in line:
                            break
                    child.send_signal(number)
                    child.communicate(timeout=60)
                    self.assertEqual(child.returncode, code)
                    tensors, report = safetensors(weights), json.loads(path.read_text())
                    self.assertEqual(len(tensors), 6)
                    self.assertGreaterEqual(report["steps"], 1)
                    self.assertEqual(len(report["step_loss"]), report["steps"])
                    self.assertNotIn("error", report)
                    digest = hashlib.sha256(b"".join(tensors[n][1] for n in sorted(tensors, key=str.encode))).hexdigest()
                    self.assertEqual(report["weights_sha256"], digest)
                    self.assertEqual(report["replica_weights_sha256"], [digest] * report["replicas"])


if __name__ == "__main__":
    unittest.main(verbosity=1)
