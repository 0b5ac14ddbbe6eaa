"""The architecture file of a model, and its reader tools/exchange/model_files.py: hostile files give one clear error. Each layer of
the library has a form in each exporter.

export_slow.py tests the rest of the Python tools, which need packages.
"""

import copy
import json
import pathlib
import random
import re
import subprocess
import sys
import unittest

import contract

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "exchange"))
import model_files  # noqa: E402


class Architecture(contract.Case):
    def setUp(self):
        super().setUp()
        self.path = self.dir / "w.json"
        done = subprocess.run([contract.BIN / "weights_in_python", self.dir / "w.safetensors"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.text = self.path.read_text("utf-8")

    def refused(self, content):
        self.path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with self.assertRaises(model_files.ModelFileError) as raised:
            model_files.read_architecture(self.path)
        message = str(raised.exception)
        self.assertTrue(message.startswith(f"{self.path}: "), message)
        self.assertEqual(len(message.splitlines()), 1, message)
        return message

    def changed(self, change):
        found = json.loads(self.text)
        change(found)
        return json.dumps(found)

    def test_what_the_program_writes_is_read(self):
        found = model_files.read_architecture(self.path)
        self.assertEqual(found["name"], "Net")
        self.assertEqual([layer["class_name"] for layer in found["layers"]], ["Conv2D", "Flatten", "Dense"])
        self.assertEqual(found["layers"][0]["config"],
                         {"filters": 8, "kernel_size": [3, 3], "strides": [1, 1], "dilation_rate": [1, 1],
                          "padding": "valid", "use_bias": True})
        self.assertEqual(found["output"], "dense")

    def test_damaged_files_are_refused_with_the_fact(self):
        for content, fact in (
                ("", "not JSON"), ("{", "not JSON"), (b"\xff\xfe", "not JSON"), ("[" * 100_000, "not JSON"),
                ("[]", "not an architecture"), ("{}", "'format' is not 'lockstep.architecture'"), ("null", "not an architecture"),
                (self.changed(lambda a: a.update(format_version=2)), "'format_version' is 2, but these tools read 1"),
                (self.changed(lambda a: a.pop("format_version")), "'format_version' is None"),
                (self.changed(lambda a: a.pop("name")), "'name' is not a string"),
                (self.changed(lambda a: a["layers"][2]["parameters"].extend(a["layers"][2]["parameters"])),
                 "layer 'dense': two parameters have the same name"),
                (self.changed(lambda a: a.update(input_shape=[28, 0, 1])), "'input_shape'"),
                (self.changed(lambda a: a.update(input_shape=[True])), "'input_shape'"),
                (self.changed(lambda a: a.update(input_shape=[1] * 5)), "'input_shape'"),
                (self.changed(lambda a: a.update(layers={})), "'layers' is not a list"),
                (self.changed(lambda a: a["layers"].append(3)), "a layer is not an object but 3"),
                (self.changed(lambda a: a["layers"][1].pop("name")), "a layer has no name"),
                (self.changed(lambda a: a["layers"][1].update(name="conv2d")), "layer 'conv2d': the name is used twice"),
                (self.changed(lambda a: a["layers"][1].update(name="input")), "layer 'input': the name is used twice"),
                (self.changed(lambda a: a["layers"][0].update(inputs=["dense"])),
                 "layer 'conv2d': the input 'dense' is not a layer that comes before"),
                (self.changed(lambda a: a["layers"][0].update(inputs=[])), "'inputs' is not a list of names"),
                (self.changed(lambda a: a["layers"][0].update(inputs=[["input"]])), "the input ['input'] is not a layer"),
                (self.changed(lambda a: a["layers"][2].update(input_shapes=[[5407]])), "layer 'dense': 'input_shapes'"),
                (self.changed(lambda a: a["layers"][2].update(output_shape=[-1])), "layer 'dense': 'output_shape'"),
                (self.changed(lambda a: a["layers"][2]["config"].update(units={})), "layer 'dense': 'config'"),
                (self.changed(lambda a: a["layers"][2]["config"].update(units=None)), "layer 'dense': 'config'"),
                (self.changed(lambda a: a["layers"][2]["parameters"][0].update(name="kernel")), "is not a parameter"),
                (self.changed(lambda a: a["layers"][2]["parameters"][0].pop("shape")), "is not a parameter"),
                (self.changed(lambda a: a.update(output="softmax")), "'output' is 'softmax', which is not a layer"),
                (self.changed(lambda a: a.update(output=["dense"])), "'output' is ['dense']")):
            with self.subTest(fact):
                self.assertIn(fact, self.refused(content))
        self.path.unlink()
        with self.assertRaisesRegex(model_files.ModelFileError, "No such file"):
            model_files.read_architecture(self.path)

    def test_random_changes_give_an_architecture_or_an_error(self):
        draws = random.Random(1)
        values = [None, True, -1, 0, 1.5, 2**40, "", "input", "conv2d", [], [1], [[1]], {}, {"name": "x"}]

        def places(value):
            """All (container, key) within a JSON value."""
            keys = range(len(value)) if isinstance(value, list) else list(value) if isinstance(value, dict) else []
            for key in keys:
                yield value, key
                yield from places(value[key])

        good = json.loads(self.text)
        accepted = refused = 0
        for _ in range(3000):
            found = copy.deepcopy(good)
            for _ in range(draws.randint(1, 3)):
                container, key = draws.choice(list(places(found)))
                if draws.random() < 0.3:
                    del container[key]
                else:
                    container[key] = copy.deepcopy(draws.choice(values))
            self.path.write_text(json.dumps(found), "utf-8")
            try:
                model_files.read_architecture(self.path)
                accepted += 1
            except model_files.ModelFileError as error:
                self.assertTrue(str(error).startswith(f"{self.path}: "))
                refused += 1
        for _ in range(1000):
            content = bytearray(self.text.encode())
            for _ in range(draws.randint(1, 8)):
                content[draws.randrange(len(content))] = draws.randrange(256)
            self.path.write_bytes(content)
            try:
                model_files.read_architecture(self.path)
                accepted += 1
            except model_files.ModelFileError:
                refused += 1
        self.assertGreater(accepted, 100)
        self.assertGreater(refused, 1000)

    def test_windows_are_those_of_the_library(self):
        # The examples of layers/sliding_window.hpp and random_crop.hpp.
        self.assertEqual(model_files.window(8, 3, 2, 1, "same"), (4, 0, 1))
        self.assertEqual(model_files.window(28, 3, 1, 1, "valid"), (26, 0, 0))
        self.assertEqual(model_files.window(26, 2, 2, 1, "valid"), (13, 0, 0))
        self.assertEqual(model_files.crop_of([5, 8, 3], 4, 4), (0, 1, 5, 5))
        with self.assertRaisesRegex(model_files.ModelFileError, "the padding is 'full'"):
            model_files.window(8, 3, 2, 1, "full")


class Exporters(unittest.TestCase):
    """Tests of the exporters that need no packages."""

    def test_each_layer_has_a_form_and_a_case(self):
        page = (ROOT / "docs/house/layers.md").read_text("utf-8")
        tables = re.findall(r"<!-- table: (?:layers|activations) .*?<!-- end -->", page, re.DOTALL)
        layers = {name for table in tables for name in re.findall(r"^\| `(\w+)", table, re.MULTILINE)}
        self.assertGreater(len(layers), 40)
        onnx = "".join((ROOT / "include/lockstep" / path).read_text("utf-8")
                       for path in ("onnx/layer_forms.ipp", "training/export/architecture.hpp"))
        for where, text, pattern in (
                ("tools/exchange/keras_model.py", (ROOT / "tools/exchange/keras_model.py").read_text("utf-8"), '"{}"'),
                ("tools/exchange/torch_model.py", (ROOT / "tools/exchange/torch_model.py").read_text("utf-8"), '"{}"'),
                ("onnx/layer_forms.ipp", onnx, '"{}"'),
                ("export_models.cpp", (ROOT / "tests/programs/export_models.cpp").read_text("utf-8"), r"ls::{}\b")):
            missing = {layer for layer in layers - contract.NOT_EXPORTED if not re.search(pattern.format(layer), text)}
            self.assertEqual(missing, set(), f"{where} has no form or case of these layers")

    def test_commands_explain_themselves_without_packages(self):
        for tool, arguments, package in (("keras_model", ["load", "a", "b", "c"], "keras"), ("torch_model", ["a", "b"], "torch")):
            # -I -S: without installed packages, and without the script's folder.
            command = [sys.executable, "-I", "-S", ROOT / f"tools/exchange/{tool}.py"]
            done = subprocess.run([*command, "--help"], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("usage:", done.stdout)
            done = subprocess.run([*command, *arguments], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(f"install {package}", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=1)
