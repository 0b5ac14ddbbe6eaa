"""TensorBoard's own reader gives every value back that lockstep wrote. The package tensorboard is that of
tests/tensorboard_requirements.txt; `./dev test --full` installs it and names its Python in LOCKSTEP_TENSORBOARD. Skipped
without it."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"])
PYTHON = os.environ.get("LOCKSTEP_TENSORBOARD")
if __name__ == "__main__":
    if not PYTHON:
        print("skipped: LOCKSTEP_TENSORBOARD does not name a Python with TensorBoard")
        sys.exit(4)
    if os.path.realpath(sys.prefix) != os.path.realpath(pathlib.Path(PYTHON).parent.parent):
        os.execv(PYTHON, [PYTHON, "-B", __file__])

import numpy  # noqa: E402
from PIL import Image  # noqa: E402
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # noqa: E402
from tensorboard.plugins.histogram import summary_v2 as histogram_summary  # noqa: E402
from tensorboard.plugins.hparams import metadata as hparams_metadata  # noqa: E402
from tensorboard.util import tensor_util  # noqa: E402


def read(folder: pathlib.Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def tensor(events: EventAccumulator, tag: str) -> dict:
    return {e.step: tensor_util.make_ndarray(e.tensor_proto) for e in events.Tensors(tag)}


class Values(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.path = pathlib.Path(cls.folder.name)
        done = subprocess.run([BIN / "tensorboard_events", cls.path], capture_output=True, text=True, check=True)
        cls.expected = json.loads(done.stdout)
        cls.trained, cls.custom = cls.expected["run"], cls.expected["custom"]
        cls.train = read(cls.path / "run/train")
        cls.validation = read(cls.path / "run/validation")

    def scalars(self, events, tag, step, values):
        """The steps are those of the function `step` of the index."""
        found = [(e.step, e.value) for e in events.Scalars(tag)]
        self.assertEqual(found, [(step(i), float(numpy.float32(v))) for i, v in enumerate(values)], tag)

    def test_scalars_of_epochs_and_batches(self):
        epochs, batches = self.trained["epochs"], self.trained["batches"]
        self.assertEqual((len(epochs), len(batches)), (3, 9))
        names = {"batch_steps_per_second", "epoch_steps_per_second"}
        for name in ("loss", "accuracy", "learning_rate"):
            names.add(f"epoch_{name}")
            self.scalars(self.train, f"epoch_{name}", lambda i: i, [e[name] for e in epochs])
        for name in ("loss", "accuracy"):
            names.add(f"batch_{name}")
            self.scalars(self.train, f"batch_{name}", lambda i: i + 1, [b[name] for b in batches])
            values = [e[f"val_{name}"] for e in epochs]
            self.scalars(self.validation, f"epoch_{name}", lambda i: i, values)
            self.scalars(self.validation, f"evaluation_{name}_vs_iterations", lambda i: 3 * i + 3, values)
        self.assertEqual(set(self.train.Tags()["scalars"]), names)
        self.assertEqual(len(self.validation.Tags()["scalars"]), 4)

    def histogram(self, tag, step, values):
        """Compares with numpy's histogram, which rounds the limits of its bins in another way."""
        found = tensor(self.train, tag)[step]
        values = numpy.array(values, dtype=numpy.float64)
        if values.min() == values.max():
            numpy.testing.assert_array_equal(found, [[values[0], values[0], values.size * (i == 29)] for i in range(30)])
            return
        counts, edges = numpy.histogram(values, bins=30)
        numpy.testing.assert_allclose(found[:, 0], edges[:-1], rtol=1e-12, atol=1e-12 * numpy.abs(edges).max(), err_msg=tag)
        numpy.testing.assert_allclose(found[:, 1], edges[1:], rtol=1e-12, atol=1e-12 * numpy.abs(edges).max(), err_msg=tag)
        self.assertEqual(found[:, 2].sum(), values.size, tag)
        # A value at a limit may be counted on either side of it.
        self.assertLessEqual(numpy.abs(numpy.cumsum(found[:, 2]) - numpy.cumsum(counts)).max(), 1, tag)

    def test_histograms_of_weights_gradients_and_updates(self):
        before, tags = self.trained["before"], set()
        for epoch, tensors in enumerate(self.trained["tensors"]):
            for name, t in tensors.items():
                self.histogram(f"{name}/histogram", epoch, t["values"])
                tags.add(f"{name}/histogram")
                if t["gradient"]:
                    self.histogram(f"{name}/gradient/histogram", epoch, t["gradient"])
                    update = numpy.float32(t["values"]) - numpy.float32(before[name])
                    self.histogram(f"{name}/update/histogram", epoch, update)
                    tags |= {f"{name}/gradient/histogram", f"{name}/update/histogram"}
            before = {name: t["values"] for name, t in tensors.items()}
        self.assertEqual({t for t in self.train.Tags()["tensors"] if t.endswith("/histogram")}, tags)
        self.assertEqual(len(tags), 6 * 3 + 2)
        for tag in tags:
            summary = self.train.SummaryMetadata(tag)
            self.assertEqual(summary.plugin_data.plugin_name, "histograms")

    def images(self, events, tag, step):
        (found,) = [e for e in events.Tensors(tag) if e.step == step]
        self.assertEqual(events.SummaryMetadata(tag).plugin_data.plugin_name, "images")
        width, height, *files = tensor_util.make_ndarray(found.tensor_proto)
        shown = []
        for data in files:
            path = self.path / "image.png"
            path.write_bytes(data)
            with Image.open(path) as image:
                self.assertEqual(image.size, (int(width), int(height)))
                shown.append(numpy.array(image))
        return shown

    def test_images(self):
        pixels = numpy.array(self.custom["pixels"], dtype=numpy.uint8).reshape(2, 4, 5, 3)
        shown = self.images(read(self.path / "custom"), "a/image", 7)
        numpy.testing.assert_array_equal(numpy.array(shown), pixels)
        kernel = numpy.float32(self.trained["tensors"][2]["conv2d/kernel"]["values"]).astype(float).reshape(3, 3, 4)
        grey = numpy.rint(255 * (kernel - kernel.min()) / (kernel.max() - kernel.min()))
        shown = numpy.array(self.images(self.train, "conv2d/kernel/image", 2)).astype(float)
        self.assertEqual(shown.shape, (3, 3, 3))  # the first three of four filters
        self.assertLessEqual(numpy.abs(shown - grey.transpose(2, 0, 1)[:3]).max(), 1)

    def test_custom_scalars_and_texts(self):
        events = read(self.path / "custom")
        steps = self.custom["steps"]
        self.scalars(events, "a/scalar", lambda i: steps[i], [0.1 * step for step in steps])
        found = tensor(read(self.path / "custom_tensors"), "a/scalar")
        self.assertEqual({s: float(v) for s, v in found.items()}, {s: float(numpy.float32(0.1 * s)) for s in steps})
        self.assertEqual(tensor(events, "a/text")[8].item().decode(), self.custom["text"])
        self.assertEqual(events.SummaryMetadata("a/text").plugin_data.plugin_name, "text")

    def test_a_tag_that_is_not_utf8_is_repaired(self):
        self.assertEqual(set(read(self.path / "custom").Tags()["scalars"]), {"a/scalar", "caf\ufffd"})

    def test_histograms_without_width_and_without_values_are_those_of_tensorboard(self):
        events = read(self.path / "custom")
        for tag, values in (("a/constant", [0.25] * 4), ("a/nothing", [])):
            summary = histogram_summary.histogram_pb(tag, values)
            expected = tensor_util.make_ndarray(summary.value[0].tensor)
            numpy.testing.assert_array_equal(tensor(events, tag)[0], expected, tag)

    def test_a_run_of_several_files_is_read_in_order_and_a_restart_replaces_its_last_step(self):
        found = [(e.step, e.value) for e in read(self.path / "continued").Scalars("a/scalar")]
        self.assertEqual(found, [(step, float(step)) for step in range(11)] + [(11, 11.5)])

    def test_hyperparameters(self):
        events = read(self.path / "run")
        content = events.SummaryMetadata(hparams_metadata.SESSION_START_INFO_TAG).plugin_data.content
        start = hparams_metadata.parse_session_start_info_plugin_data(content)
        self.assertEqual({name: getattr(value, value.WhichOneof("kind")) for name, value in start.hparams.items()},
                         {"units": 3.0, "augment": False, "optimizer": "adam"})
        content = events.SummaryMetadata(hparams_metadata.SESSION_END_INFO_TAG).plugin_data.content
        end = hparams_metadata.parse_session_end_info_plugin_data(content)
        self.assertEqual(end.status, 1)  # success
        self.assertGreaterEqual(end.end_time_secs, start.start_time_secs)

    def test_the_graph(self):
        graph = self.train.Graph()
        nodes = {node.name: node for node in graph.node}
        self.assertEqual(len(nodes), len(graph.node))
        for name, kind in self.trained["layers"]:
            self.assertEqual(nodes[f"{name}/{kind}"].op, kind)
        for node in graph.node:
            self.assertTrue(set(node.input) <= nodes.keys(), node.name)
        shape = nodes["conv2d/Conv2D"].attr["_output_shapes"].list.shape[0]
        self.assertEqual([dim.size for dim in shape.dim], [-1, 4, 4, 4])
        self.assertEqual(sum(node.op == "Parameter" for node in graph.node), len(self.trained["before"]))


if __name__ == "__main__":
    unittest.main()
