"""The contract of the CIFAR-10 programs: options, report, recipe, replicas and workers. Mostly ResNet-20 with small batches.

Behaviour shared with the MNIST programs is tested by contract.py and multi_worker.py.
"""

import hashlib
import json
import os
import pathlib
import random
import re
import struct
import tempfile
import unittest

import contract

BIN = contract.BIN
FILES = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
RECORD, RECORDS = 3073, 10_000
SMALL = ["--depth", 20, "--threads", 1, "--quiet"]


def record(i):
    """A label, then planes of a picture: broad stripes whose colours depend on the class, and noise."""
    draw, label = random.Random(i), i % 10
    planes = [[(60 + 19 * label * (1 + c) + 40 * (y // 8 % 2) + draw.randrange(30)) % 256 for y in range(32)] for c in range(3)]
    return bytes([label]) + b"".join(bytes([v]) * 32 for plane in planes for v in plane)


class Case(contract.Case):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        some = b"".join(record(i) for i in range(500))
        for name in FILES:
            (cls.folder / name).write_bytes(some * (RECORDS // 500))

    def with_file(self, name, content):
        """The data with another content of one file, or without it."""
        folder = self.dir / "data"
        folder.mkdir(exist_ok=True)
        for other in FILES:
            (folder / other).unlink(missing_ok=True)
            if other != name:
                (folder / other).symlink_to(self.folder / other)
        if content is not None:
            (folder / name).write_bytes(content)
        return folder

    def near(self, a, b, relative):
        self.assertEqual(len(a), len(b))
        for x, y in zip(a, b):
            self.assertAlmostEqual(x, y, delta=relative * abs(x))


def digest_of(tensors):
    return hashlib.sha256(b"".join(tensors[n][1] for n in sorted(tensors, key=str.encode))).hexdigest()


class Report(Case):
    def test_resnet_56_is_the_default(self):
        weights = self.dir / "w.safetensors"
        report, done = self.report("cifar10", "--data", self.folder, "--take", 12, "--batch", 8, "--epochs", 1, "--quiet",
                                   "--threads", 1, "--save", weights)
        self.assertEqual(done.stdout, "")
        expected = {"program": "cifar10", "strategy": "one_device", "device": "cpu", "precision": "float32", "threads": 1,
                    "replicas": 1, "parameters": 862490, "trainable_parameters": 858202, "batch": 8, "first_step": 0,
                    "steps": 2, "seed": 1}
        self.assertEqual({key: report[key] for key in expected}, expected)
        self.assertEqual([sorted(e) for e in report["epochs"]], [["accuracy", "loss", "seconds"]])
        loss = sum(n * v for n, v in zip((8, 4), report["step_loss"])) / 12
        self.assertAlmostEqual(report["epochs"][0]["loss"], loss, places=6)
        # The digest is over moving statistics too.
        tensors = contract.safetensors(weights)
        self.assertEqual(len(tensors), 2 * 59 + 4 * 58)  # 58 convolutions and the dense layer; 58 normalizations
        self.assertIn("batch_normalization_57/moving_variance", tensors)
        self.assertEqual(tensors["conv2d/kernel"][0]["shape"], [3, 3, 3, 16])
        self.assertEqual(report["weights_sha256"], digest_of(tensors))
        self.assertEqual(report["replica_weights_sha256"], [digest_of(tensors)])

    def test_resnet_20(self):
        report, _ = self.report("cifar10", *SMALL, "--data", self.folder, "--take", 32, "--batch", 16, "--epochs", 2, "--validate",
                                "--no-augment")
        self.assertEqual((report["parameters"], report["trainable_parameters"], report["steps"]), (275162, 273562, 4))
        self.assertEqual([sorted(e) for e in report["epochs"]],
                         [["accuracy", "loss", "seconds", "val_accuracy", "val_loss"]] * 2)

    def test_shapes_are_drawn_without_data_and_the_batch_is_128_for_each_replica(self):
        one, _ = self.report("cifar10", *SMALL, "--epochs", 1, "--steps-per-epoch", 1)
        two, _ = self.report("cifar10_mirrored", *SMALL, "--replicas", 2, "--epochs", 1, "--steps-per-epoch", 1)
        self.assertEqual((one["batch"], two["batch"], two["replicas"]), (128, 256, 2))
        small, _ = self.report("cifar10_mirrored", *SMALL, "--replicas", 2, "--epochs", 1, "--steps-per-epoch", 1, "--batch", 10)
        self.assertEqual(small["batch"], 10)

    def test_the_losses_are_keras(self):
        folder = os.environ.get("LOCKSTEP_GOLDEN_FULL")
        if not folder:
            self.skipTest("set LOCKSTEP_GOLDEN_FULL to the folder with resnet56.safetensors")
        golden = contract.safetensors(pathlib.Path(folder) / "resnet56.safetensors")
        init = self.dir / "init.safetensors"
        contract.write_safetensors(init, {n.removeprefix("init/"): (e["dtype"], e["shape"], d)
                                          for n, (e, d) in golden.items() if n.startswith("init/")})
        pixels = numbers(golden["pixels"])  # [64, 32, 32, 3]
        labels = numbers(golden["labels"])
        records = b"".join(bytes([int(label)]) + bytes(int(v) for c in range(3) for v in pixels[3072 * i + c : 3072 * (i + 1) : 3])
                           for i, label in enumerate(labels))
        data = self.with_file(FILES[0], records + b"\0" * (RECORD * RECORDS - len(records)))
        report, _ = self.report("cifar10", "--data", data, "--init", init, "--take", len(labels), "--no-shuffle", "--no-augment",
                                "--batch", 16, "--epochs", 1, "--learning-rate", 0.0001, "--quiet")
        self.near(numbers(golden["loss"]), report["step_loss"], 1e-5)


def numbers(tensor):
    entry, data = tensor
    letter, size = {"F64": ("d", 8), "F32": ("f", 4), "U8": ("B", 1), "I32": ("i", 4), "I64": ("q", 8)}[entry["dtype"]]
    return struct.unpack(f"<{len(data) // size}{letter}", data)


class Recipe(Case):
    def test_a_run_is_a_function_of_the_seed_and_augmentation_changes_it(self):
        options = [*SMALL, "--data", self.folder, "--take", 32, "--batch", 16, "--epochs", 1]
        runs = [self.report("cifar10", *options, *more)[0]
                for more in ([], [], ["--seed", 2], ["--no-augment"], ["--no-shuffle"])]
        digests = [run["weights_sha256"] for run in runs]
        self.assertEqual(digests[0], digests[1])
        self.assertEqual(len(set(digests[1:])), 4)
        # The same images without and with crop and flip: the same initial weights, other losses.
        plain, augmented = (self.report("cifar10", *options, "--no-shuffle", *more)[0]["step_loss"]
                            for more in (["--no-augment"], []))
        self.assertNotEqual(plain[0], augmented[0])

    def test_it_learns(self):
        report, _ = self.report("cifar10", *SMALL, "--data", self.folder, "--take", 256, "--batch", 32, "--epochs", 5,
                                "--learning-rate", 0.02)
        self.assertLess(report["epochs"][-1]["loss"], 0.8 * report["epochs"][0]["loss"])
        self.assertGreater(report["epochs"][-1]["accuracy"], 0.4)

    def test_the_rate_falls_after_30_and_45_epochs(self):
        done = contract.run("cifar10", *SMALL[:-1], "--data", self.folder, "--take", 2, "--batch", 2, "--epochs", 46,
                            "--learning-rate", 0.2)
        self.assertEqual(done.returncode, 0, done.stderr)
        rates = [float(rate) for rate in re.findall(r"learning_rate: ([\d.e-]+)", done.stdout)]
        for found, expected in zip(rates, [0.2] * 30 + [0.02] * 15 + [0.002], strict=True):
            self.assertAlmostEqual(found, expected, places=6)


class Replicas(Case):
    def test_replicas_that_see_the_same_images_train_as_one_device(self):
        # Each global batch is twice the same images, so that the statistics of a replica are those of the batch.
        first = (self.folder / FILES[0]).read_bytes()
        halves = [first[k * 8 * RECORD : (k + 1) * 8 * RECORD] for k in range(3)]
        twice = b"".join(half * 2 for half in halves)
        data = self.with_file(FILES[0], twice + first[len(twice) :])
        options = [*SMALL, "--data", data, "--take", 48, "--batch", 16, "--no-shuffle", "--no-augment", "--epochs", 1,
                   "--learning-rate", 0.01]
        one, _ = self.report("cifar10", *options)
        two, _ = self.report("cifar10_mirrored", *options, "--replicas", 2, "--verify-every", 1)
        self.near(one["step_loss"], two["step_loss"], 1e-4)
        self.assertEqual(set(two["replica_weights_sha256"]), {two["weights_sha256"]})
        self.assertEqual((two["strategy"], two["replicas"], two["steps"]), ("mirrored", 2, 3))

    def test_virtual_shards_give_equal_bits_for_replicas_and_workers(self):
        options = ["--depth", 20, "--data", self.folder, "--take", 22, "--batch", 8, "--epochs", 1, "--virtual-shards", 2, "--quiet"]
        path = self.dir / "workers.json"
        one, _ = self.report("cifar10", *options)
        two, _ = self.report("cifar10_mirrored", *options, "--replicas", 2)
        done = contract.run("lockstep-run", "-n", 2, "cifar10_multi_worker", *options, "--report", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        workers = json.loads(path.read_text())
        self.assertEqual((workers["strategy"], workers["workers"], workers["replicas"]), ("multi_worker_mirrored", 2, 2))
        for run in (two, workers):
            self.assertEqual(run["step_loss"], one["step_loss"])
            self.assertEqual(run["weights_sha256"], one["weights_sha256"])

    def test_workers_train_validate_and_save(self):
        path, weights = self.dir / "workers.json", self.dir / "w.safetensors"
        done = contract.run("lockstep-run", "-n", 2, "cifar10_multi_worker", *SMALL, "--take", 24, "--batch", 16, "--epochs", 1,
                            "--validate", "--save", weights, "--report", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        report = json.loads(path.read_text())
        self.assertEqual((report["program"], report["steps"], report["parameters"]), ("cifar10_multi_worker", 2, 275162))
        self.assertIn("val_accuracy", report["epochs"][0])
        self.assertEqual(report["weights_sha256"], digest_of(contract.safetensors(weights)))


class BadInput(Case):
    def test_exit_code_2_names_the_option(self):
        for arguments in (["--depth", "19"], ["--depth", "20.0"], ["--depth", "020"], ["--depth", ""], ["--depth", "-20"],
                          ["--precision", "float16"], ["--optimizer", "sgd"], ["--replicas", 2], ["--batch", 0]):
            with self.subTest(arguments=arguments):
                done = contract.run("cifar10", *arguments)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertEqual(done.stdout, "")
                self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
                self.assertIn(arguments[0], done.stderr)
        for arguments in (["--depth", 20], ["--no-augment"]):
            self.assertEqual(contract.run("mnist", *arguments).returncode, 2)
        for option in ("--depth", "--no-augment", "128 x all replicas"):
            self.assertIn(option, contract.run("cifar10", "--help").stdout)
            self.assertNotIn(option, contract.run("mnist", "--help").stdout)

    def test_a_combination_that_was_not_built_is_refused_by_name(self):
        done = contract.run("cifar10_mirrored", "--depth", 20, "--precision", "mixed_bfloat16", "--take", 1, "--epochs", 1, "--batch", 1,
                            "--quiet")
        if "was built with" not in done.stderr:
            self.skipTest("mixed_bfloat16 was built: LOCKSTEP_BUILD_ALL_UNITS is on")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--precision mixed_bfloat16", done.stderr)
        self.assertIn("--depth 20 --precision float32", done.stderr)

    def fails(self, data, says, *more):
        report, done = self.report("cifar10", *SMALL, "--epochs", 1, "--take", 2, "--batch", 2, "--data", data, *more, code=1)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        for text in says:
            self.assertIn(text, done.stderr)
            self.assertIn(text, report["error"])
        self.assertEqual(report.get("steps", 0), 0)

    def test_bad_data_is_refused_by_the_file(self):
        whole = (self.folder / FILES[2]).read_bytes()
        for name, content, says in (("missing", None, "cannot be found"), ("short", whole[:-1], "truncated"),
                                    ("long", whole + b"\0", "longer than"), ("label", b"\x0a" + whole[1:], "label 0 is 10")):
            with self.subTest(name):
                self.fails(self.with_file(FILES[2], content), [FILES[2], says])
        self.fails(self.dir / "nowhere", ["nowhere"])
        self.fails(self.folder, ["--skip 50000"], "--skip", 50_000)

    def test_the_test_file_is_read_only_with_validate(self):
        data = self.with_file(FILES[5], b"broken")
        self.report("cifar10", *SMALL, "--epochs", 1, "--take", 2, "--batch", 2, "--data", data)
        self.fails(data, [FILES[5]], "--validate")


if __name__ == "__main__":
    unittest.main(verbosity=1)
