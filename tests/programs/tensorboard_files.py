"""The programs' option --tensorboard: the values of a run are in the event files, also after the process was killed, and a full
disk does not end the training. Files are read by tests/support/event_files.py."""
import json
import os
import pathlib
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
import event_files  # noqa: E402

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"])
SMALL = ["--take", "320", "--threads", "1"]  # five steps an epoch


def float32(value: float) -> float:
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = pathlib.Path(folder.name)

    def run_program(self, *arguments, code=0, **more):
        done = subprocess.run([str(part) for part in (BIN / arguments[0], *arguments[1:])], capture_output=True, text=True,
                              timeout=300, **more)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def report(self, *arguments, **more):
        path = self.dir / "report.json"
        self.run_program(*arguments, "--report", path, "--quiet", **more)
        return json.loads(path.read_text())


class Values(Case):
    def test_the_values_of_the_report_are_in_the_files(self):
        logs = self.dir / "logs"
        report = self.report("mnist", *SMALL, "--epochs", 3, "--validate", "--tensorboard", logs)
        train, validation = event_files.scalars(logs / "train"), event_files.scalars(logs / "validation")
        for name in ("loss", "accuracy"):
            self.assertEqual(train[f"epoch_{name}"], [(i, float32(e[name])) for i, e in enumerate(report["epochs"])])
            self.assertEqual(validation[f"epoch_{name}"], [(i, float32(e[f"val_{name}"])) for i, e in enumerate(report["epochs"])])
            self.assertEqual(validation[f"evaluation_{name}_vs_iterations"],
                             [(5 * i + 5, float32(e[f"val_{name}"])) for i, e in enumerate(report["epochs"])])
        self.assertEqual(train["epoch_learning_rate"], [(i, float32(0.001)) for i in range(3)])
        # Values of batches are means over the epoch so far.
        losses = report["step_loss"]
        means = [sum(losses[i - i % 5 : i + 1]) / (i % 5 + 1) for i in range(15)]
        self.assertEqual([step for step, _ in train["batch_loss"]], list(range(1, 16)))
        for (_, value), mean in zip(train["batch_loss"], means, strict=True):
            self.assertAlmostEqual(value, mean, delta=1e-5)
        for name in ("batch_steps_per_second", "epoch_steps_per_second"):
            self.assertTrue(all(value > 0 for _, value in train[name]))
        first, second = event_files.events(logs / "train")[:2]
        self.assertEqual(first["version"], b"brain.Event:2")
        self.assertIn(b"conv2d/Conv2D", second["graph"])
        self.assertEqual([e["tags"] for e in event_files.events(logs)[1:]],
                         [["_hparams_/session_start_info"], ["_hparams_/session_end_info"]])

    def test_the_weights_do_not_depend_on_the_option(self):
        plain = self.report("mnist", *SMALL, "--epochs", 1)
        logged = self.report("mnist", *SMALL, "--epochs", 1, "--tensorboard", self.dir / "logs")
        self.assertEqual(plain["weights_sha256"], logged["weights_sha256"])

    def test_only_the_chief_of_a_job_writes(self):
        logs = self.dir / "logs"
        self.run_program("lockstep-run", "-n", 2, BIN / "mnist_multi_worker", *SMALL, "--epochs", 2, "--quiet", "--tensorboard", logs)
        self.assertEqual(len(list((logs / "train").iterdir())), 1)
        train = event_files.scalars(logs / "train")
        self.assertEqual([step for step, _ in train["epoch_loss"]], [0, 1])
        self.assertEqual([step for step, _ in train["batch_loss"]], list(range(1, 11)))

    def test_a_second_run_continues_in_the_folder(self):
        logs = self.dir / "logs"
        for _ in range(2):
            self.run_program("mnist", *SMALL, "--epochs", 1, "--quiet", "--tensorboard", logs)
        self.assertEqual(len(list((logs / "train").iterdir())), 2)
        self.assertEqual(len(event_files.scalars(logs / "train")["epoch_loss"]), 2)


class Failures(Case):
    def test_a_killed_run_keeps_its_records(self):
        logs = self.dir / "logs"
        command = [BIN / "mnist", *SMALL, "--epochs", "100000", "--progress", "json", "--tensorboard", logs]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            seen = []
            for line in process.stdout:
                seen.append(json.loads(line))
                if seen[-1]["event"] == "step" and seen[-1]["step"] >= 42:
                    break
            process.send_signal(signal.SIGKILL)
        epochs = [e for e in seen if e["event"] == "epoch_end"]
        self.assertEqual(process.returncode, -signal.SIGKILL)
        found = event_files.scalars(logs / "train", may_be_torn=True)
        self.assertGreaterEqual(len(epochs), 8)
        # All of an epoch when it has ended; within an epoch, all but the last events, at most ten.
        self.assertEqual(found["epoch_loss"][: len(epochs)], [(i, float32(e["loss"])) for i, e in enumerate(epochs)])
        self.assertEqual([step for step, _ in found["batch_loss"]], list(range(1, len(found["batch_loss"]) + 1)))
        self.assertGreaterEqual(len(found["batch_loss"]), 40)

    def test_a_full_disk_does_not_end_the_training(self):
        logs = self.dir / "logs"

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the error EFBIG instead
            resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))

        done = self.run_program("mnist", *SMALL, "--epochs", 20, "--quiet", "--tensorboard", logs, preexec_fn=limit,
                                restore_signals=False)
        warnings = [line for line in done.stderr.splitlines() if "cannot be written" in line]
        self.assertEqual(len(warnings), 1, done.stderr)
        self.assertIn(str(logs / "train"), warnings[0])
        found = event_files.scalars(logs / "train")  # whole records only
        self.assertEqual([step for step, _ in found["epoch_loss"]][:2], [0, 1])
        self.assertLess(len(found["epoch_loss"]), 20)

    def test_a_folder_that_cannot_be_created_is_found_before_the_training(self):
        blocked = self.dir / "file"
        blocked.write_text("not a folder")
        done = self.run_program("mnist", *SMALL, "--epochs", 1, "--quiet", "--tensorboard", blocked, code=1)
        self.assertEqual(len(done.stderr.strip().splitlines()), 1, done.stderr)
        self.assertIn(str(blocked), done.stderr)
        self.assertEqual(self.run_program("mnist", "--tensorboard", "", code=2).stdout, "")


if __name__ == "__main__":
    unittest.main()
