"""`--trace FILE` of the programs: what a trace in Chrome's format has of each rank, replica and layer.

The structure only; durations depend on the machine.
"""

import json
import unittest

import contract
from multi_worker import Case

LAYERS = ["conv2d+re_lu+max_pooling2d", "dense+re_lu_1", "dense_1"]  # as they are fused on the CPU


class Trace:
    """A trace's events, {name, cat, ts, dur, pid, tid, args}, and the names of its threads by (pid, tid)."""

    def __init__(self, path):
        trace = json.loads(path.read_text())
        self.events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        self.threads = {(e["pid"], e["tid"]): e["args"]["name"]
                        for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "thread_name"}
        self.processes = {e["pid"]: e["args"]["name"]
                          for e in trace["traceEvents"] if e["ph"] == "M" and e["name"] == "process_name"}
        self.other = trace["otherData"]

    def steps(self, thread, name, category):
        return [e["args"]["step"] for e in self.events
                if (e["pid"], e["tid"]) == thread and (e["name"], e["cat"]) == (name, category)
                and not e["args"].get("resumes")]


class Traces(Case):
    def check_threads(self, trace):
        """Events of a thread nest or follow each other."""
        for thread in {(e["pid"], e["tid"]) for e in trace.events}:
            self.assertIn(thread, trace.threads)
            ends = []
            for e in sorted((e for e in trace.events if (e["pid"], e["tid"]) == thread), key=lambda e: (e["ts"], -e["dur"])):
                self.assertGreaterEqual(e["dur"], 0)
                self.assertGreaterEqual(e["ts"], 0)
                while ends and ends[-1] <= e["ts"] + 1e-4:
                    ends.pop()
                if ends:
                    self.assertLessEqual(e["ts"] + e["dur"], ends[-1] + 1e-4, e)
                ends.append(e["ts"] + e["dur"])

    def check_steps(self, trace, thread, steps):
        for layer in LAYERS:
            for category in ("forward", "backward"):
                self.assertEqual(trace.steps(thread, layer, category), steps, (thread, layer, category))
        self.assertEqual(trace.steps(thread, "loss", "loss"), steps)
        self.assertEqual(sorted(set(trace.steps(thread, "optimizer", "update"))), steps)

    def test_mnist_writes_the_layers_of_each_step(self):
        path = self.dir / "trace.json"
        options = "--data", self.data(), "--epochs", 2, "--threads", 1, "--quiet"
        plain, _ = self.report("mnist", *options)
        traced, done = self.report("mnist", *options, "--validate", "--trace", path, "--checkpoint", self.dir / "c")
        self.assertEqual((done.stdout, done.stderr), ("", ""))
        self.assertEqual(traced["weights_sha256"], plain["weights_sha256"])
        trace = Trace(path)
        self.assertEqual((trace.processes, trace.threads), ({0: "rank 0"}, {(0, 0): "replica 0"}))
        steps = [3, 4, 5]  # the second half of a fit of six steps
        self.check_steps(trace, (0, 0), steps)
        for phase in ("data", "step", "callbacks"):
            self.assertEqual(sorted(set(trace.steps((0, 0), phase, "loop")) & set(steps)), steps, phase)
        self.check_threads(trace)
        self.assertEqual(trace.other, {"clock_offset_us": [0], "clock_error_us": [0], "dropped_events": 0})

    def test_the_workers_of_a_job_write_one_trace(self):
        options = ["--data", self.data(), "--epochs", 2, "--quiet", *self.small]
        path = self.dir / "trace.json"
        job = self.start(contract.BIN / "lockstep-run", "-n", 2, "mnist_multi_worker", "--trace", path, "--replicas", 2,
                         *options)
        self.ends(job, 0)
        trace = Trace(path)
        self.assertEqual(trace.processes, {0: "rank 0", 1: "rank 1"})
        self.assertEqual([trace.threads[thread] for thread in ((0, 0), (0, 3), (1, 0), (1, 3))],
                         [f"replica {i}" for i in range(4)])
        steps = [3, 4, 5]
        for thread in ((0, 0), (0, 3), (1, 0), (1, 3)):
            self.check_steps(trace, thread, steps)
            buckets = [e["args"]["bytes"] for e in trace.events if e["name"] == "bucket" and e["pid"] == thread[0]
                       and e["tid"] in (thread[1], thread[1] + (1 if thread[1] else 2))]
            self.assertEqual(sum(buckets), len(steps) * 4 * 347146)
        self.check_threads(trace)
        # The processes of one machine have one clock.
        self.assertEqual(len(trace.other["clock_offset_us"]), 2)
        for offset, error in zip(trace.other["clock_offset_us"], trace.other["clock_error_us"], strict=True):
            self.assertLessEqual(abs(offset), error + 1e-3)
        # No replica ends a step before all have begun it.
        error = max(trace.other["clock_error_us"])
        for step in steps:
            spans = [e for e in trace.events if (e["name"], e["cat"]) == ("step", "loop") and e["args"]["step"] == step]
            self.assertEqual(sorted(e["pid"] for e in spans), [0, 1])
            self.assertLessEqual(max(e["ts"] for e in spans), min(e["ts"] + e["dur"] for e in spans) + error)

    def test_a_trace_of_some_workers_is_refused(self):
        options = "--data", self.data(), "--epochs", 1, "--quiet", *self.small
        path = self.dir / "trace.json"
        for job in self.workers(2, *options, own=lambda rank: ["--trace", path] if rank == 0 else []):
            self.assertIn(job.wait(), (1, 2), job.stderr())
            self.assertRegex(job.last_line(), 'rank 0 .*rank 1 .*differ in "trace": "10 steps from the usual step" and "none"')
        self.assertFalse(path.exists())

    def test_a_trace_that_cannot_be_written_is_refused(self):
        options = "--data", self.data(), "--quiet"
        done = contract.run("mnist", *options, "--trace", self.dir / "none" / "t.json")
        self.assertEqual(done.returncode, 1)
        self.assertIn("none/t.json", done.stderr)
        same = self.dir / "same.json"
        for other in ("--report", "--profile", "--save"):
            done = contract.run("mnist", *options, "--trace", same, other, same)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("same.json", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
