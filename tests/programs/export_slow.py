"""Models with all layers of the library in Keras, PyTorch and ONNX, and their weights back.

export_models.cpp writes random models; each must predict the same in the three frameworks, to 1e-5. Keras and PyTorch then
change the weights and save them, and lockstep must predict with them what they do. Installs the frameworks from PyPI
(6 GB) in the virtual environment $LOCKSTEP_FRAMEWORKS, by default build/<preset>/frameworks, which later runs use again;
skipped if that fails.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import venv

BIN = pathlib.Path(os.environ["LOCKSTEP_BIN"]).resolve()
ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "exchange"
FRAMEWORKS = pathlib.Path(os.environ.get("LOCKSTEP_FRAMEWORKS", BIN.parent / "frameworks"))
PACKAGES = ["keras", "jax", "numpy", "safetensors", "onnx", "onnxruntime", "torch"]


def in_frameworks():
    """Runs this file again with the Python of the frameworks, or skips."""
    if not (FRAMEWORKS / "installed").exists():
        venv.create(FRAMEWORKS, with_pip=True)
        done = subprocess.run([FRAMEWORKS / "bin/python", "-m", "pip", "install", "--quiet", *PACKAGES],
                              capture_output=True, text=True)
        if done.returncode != 0:
            print("skipped: PyPI gives no", ", ".join(PACKAGES), done.stderr.strip().splitlines()[-1])
            sys.exit(4)
        (FRAMEWORKS / "installed").touch()
    environment = {"KERAS_BACKEND": "jax", **os.environ, "LOCKSTEP_IN_FRAMEWORKS": "1", "CUDA_VISIBLE_DEVICES": ""}
    sys.exit(subprocess.run([FRAMEWORKS / "bin/python", __file__, *sys.argv[1:]], env=environment).returncode)


if "LOCKSTEP_IN_FRAMEWORKS" not in os.environ:
    in_frameworks()

sys.path.insert(0, str(TOOLS))
import keras  # noqa: E402
import numpy  # noqa: E402
import onnx  # noqa: E402
import onnxruntime  # noqa: E402
import torch  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

import contract  # noqa: E402
import keras_model  # noqa: E402
import torch_model  # noqa: E402
from model_files import ModelFileError  # noqa: E402

MODELS = ["conv2d", "conv1d", "recurrent", "attention", "depthwise", "transpose", "transpose_padded", "dense", "pooling2d", "pooling1d",
          "global_pooling", "volumes", "normalizations", "activations", "shapes", "moves", "merges", "dots", "training_only",
          "words", "nothing", "strided_dilation", "groups", "slopes", "resized", "transpose1d", "uneven", "first_and_last",
          "four_axes", "names", "named_blocks", "nested", "mnist_cnn", "resnet20", "branches"]
GRAPHS = ["graph", "cross_attention"]  # with several inputs and outputs
NOT_IN_KERAS = {"strided_dilation"}
# Options that do not change what a trained model predicts, or follow from shapes and parameters.
NOT_IN_TOOLS = {"activation_formula", "axis", "center", "depth_multiplier", "dropout", "factor", "fill", "fill_mode", "fill_value",
                "filters", "formula", "head_dim", "height", "height_factor", "input_dim", "interpolation", "keeps_aspect",
                "key_dim", "mode", "momentum", "num_heads", "num_key_value_heads", "num_query_heads", "output_dim", "output_shape", "rate",
                "recurrent_dropout", "sequence_length", "shared_axes", "size", "stddev", "synchronized", "target_shape", "units",
                "use_bias", "value_dim", "value_range", "width", "width_factor"}


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.kept = tempfile.TemporaryDirectory()
        cls.folder = pathlib.Path(cls.kept.name)
        subprocess.run(["cmake", "--build", BIN.parent, "--target", "export_models"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([BIN / "export_models", cls.folder], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.kept.cleanup()

    def file(self, name, suffix):
        return str(self.folder / f"{name}.{suffix}")

    def both_files(self, name):
        return self.file(name, "json"), self.file(name, "safetensors")

    def data(self, name):
        found = load_file(self.file(name, "data"))
        return found["x"], found["y"]

    def assert_close(self, found, expected, scale=1):
        found = numpy.asarray(found)
        self.assertEqual(found.shape, expected.shape)
        self.assertGreater(numpy.abs(expected).max(), 0)
        difference = numpy.abs(found - expected) / numpy.maximum(scale, numpy.abs(expected))
        self.assertLess(difference.max(), 1e-5)

    def check_back(self, predictions):
        """`predictions` are those of the weights in NAME.back, by NAME."""
        for stale in self.folder.glob("*.again"):
            stale.unlink()
        subprocess.run([BIN / "export_models", self.folder, "back"], check=True)
        for name, expected in predictions.items():
            with self.subTest(back=name):
                expected = numpy.asarray(expected)
                # The changed weights have sums of large terms that cancel.
                self.assert_close(load_file(self.file(name, "again"))["y"], expected, max(1, numpy.abs(expected).max()))

    def assert_changed(self, name, prediction):
        has_weights = bool(load_file(self.file(name, "safetensors")))
        self.assertEqual(bool(numpy.abs(numpy.asarray(prediction) - self.data(name)[1]).max() > 1e-3), has_weights)

    def test_keras(self):
        changed = {}
        for name in (name for name in MODELS if name not in NOT_IN_KERAS):
            with self.subTest(name):
                x, y = self.data(name)
                model = keras_model.load(*self.both_files(name))
                self.assert_close(model.predict(x, verbose=0), y)
                for layer in model.layers:
                    for variable in keras_model._variables(layer).values():
                        variable.assign(variable * 0.9 + 0.01)
                    if isinstance(layer, keras.layers.Normalization):
                        layer.finalize_state()
                changed[name] = keras.ops.convert_to_numpy(model(x, training=False))
                self.assert_changed(name, changed[name])
                keras_model.save(model, self.file(name, "back"))
        self.check_back(changed)

    def test_models_within_a_keras_model_are_named_blocks(self):
        layers = keras.layers
        head = keras.Sequential([keras.Input([5]), layers.Dense(4, name="dense"),
                                 layers.Dense(3, activation="relu", name="dense_1")], name="head")
        trunk = keras.Sequential([keras.Input([6]), layers.Dense(5, activation="relu", name="dense"),
                                  layers.BatchNormalization(name="batch_normalization"), head], name="trunk")
        model = keras.Sequential([keras.Input([6]), layers.Dense(6, name="dense"), trunk, layers.Dense(2, name="dense_1")])
        keras_model.save(model, self.file("nested", "back"))
        self.assertEqual(set(load_file(self.file("nested", "back"))), set(load_file(self.file("nested", "safetensors"))))
        self.check_back({"nested": model.predict(self.data("nested")[0], verbose=0)})

    @unittest.skipIf(os.environ["KERAS_BACKEND"] == "torch", "this is that run")
    def test_keras_with_pytorch(self):
        done = subprocess.run([sys.executable, __file__, "Export.test_keras"], capture_output=True, text=True,
                              env={**os.environ, "KERAS_BACKEND": "torch"})
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_keras_refuses_what_it_has_not(self):
        for name in NOT_IN_KERAS:
            with self.subTest(name), self.assertRaisesRegex(ModelFileError, "strides > 1. not supported in conjunction"):
                keras_model.load(*self.both_files(name))

    def test_keras_with_other_axes_by_default(self):
        keras.config.set_image_data_format("channels_first")
        try:
            x, y = self.data("first_and_last")
            self.assert_close(keras_model.load(*self.both_files("first_and_last")).predict(x, verbose=0), y)
            self.assertEqual(keras.config.image_data_format(), "channels_first")
        finally:
            keras.config.set_image_data_format("channels_last")

    def test_models_have_all_layers_of_the_catalogue(self):
        self.assertEqual(sorted(path.stem for path in self.folder.glob("*.onnx")), sorted(MODELS + GRAPHS))
        page = (ROOT / "docs/house/layers.md").read_text("utf-8")
        layers, activations = (set(re.findall(r"^\| `(\w+)", table, re.MULTILINE)) for table in
                               re.findall(r"<!-- table: (?:layers|activations) .*?<!-- end -->", page, re.DOTALL))
        self.assertGreater(len(layers), 30)
        self.assertGreater(len(activations), 10)
        classes, functions, options = set(), set(), set()
        for name in MODELS:
            for layer in json.loads(pathlib.Path(self.file(name, "json")).read_text("utf-8"))["layers"]:
                classes.add(layer["class_name"])
                functions.add(layer["config"].get("activation"))
                options |= set(layer["config"])
        self.assertEqual(classes, (layers | activations | {"Function"}) - contract.NOT_EXPORTED)
        self.assertEqual(functions - {None, "Function"}, keras_model.ACTIVATIONS)
        self.assertEqual(NOT_IN_TOOLS - options, set())
        # An option that no exporter reads would be ignored by it.
        for source in "tools/exchange/torch_model.py", "include/lockstep/onnx/layer_forms.ipp":
            text = (ROOT / source).read_text("utf-8")
            self.assertEqual({o for o in options if f'"{o}"' not in text} - NOT_IN_TOOLS, set(), source)

    def test_pytorch(self):
        changed = {}
        for name in MODELS:
            with self.subTest(name), torch.no_grad():
                x, y = self.data(name)
                model = torch_model.load(*self.both_files(name))
                self.assert_close(model(torch.from_numpy(x)), y)
                for tensor in model.state_dict().values():
                    if tensor.dtype == torch.float32:
                        tensor.mul_(0.9).add_(0.01)
                for module in model.modules():  # lockstep has no scale here that could change
                    for parameter in module.parameters(recurse=False):
                        if not parameter.requires_grad:
                            parameter.sub_(0.01).div_(0.9)
                changed[name] = model(torch.from_numpy(x)).numpy()
                self.assert_changed(name, changed[name])
                torch_model.save(model, self.file(name, "back"))
        self.check_back(changed)

    def test_pytorch_trains(self):
        x, _ = self.data("mnist_cnn")
        model = torch_model.load(*self.both_files("mnist_cnn")).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        losses = []
        for _ in range(5):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(torch.from_numpy(x)), torch.tensor([1, 2, 3]))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        self.assertLess(losses[-1], losses[0])

    def test_pytorch_drops_in_recurrent_layers(self):
        x = torch.from_numpy(self.data("recurrent")[0])
        model = torch_model.load(*self.both_files("recurrent")).train()
        self.assertFalse(torch.equal(model(x), model(x)))

    def test_onnx(self):
        for name in MODELS:
            with self.subTest(name):
                x, y = self.data(name)
                onnx.checker.check_model(self.file(name, "onnx"), full_check=True)
                session = onnxruntime.InferenceSession(self.file(name, "onnx"), providers=["CPUExecutionProvider"])
                self.assertEqual([i.name for i in session.get_inputs()], ["input"])
                self.assertEqual(session.get_inputs()[0].shape, ["N", *x.shape[1:]])
                self.assertEqual(session.get_outputs()[0].shape, ["N", *y.shape[1:]])
                self.assert_close(session.run(["output"], {"input": x})[0], y)
                self.assert_close(session.run(["output"], {"input": x[:1]})[0], y[:1])  # the batch is free

    def test_graphs(self):
        for name in GRAPHS:
            found = json.loads(pathlib.Path(self.file(name, "json")).read_text("utf-8"))
            x, y = self.data(name)
            inputs = {part["name"]: x[:, part["offset"]:][:, :numpy.prod(part["shape"])].reshape(-1, *part["shape"])
                      for part in found["inputs"]}
            outputs = [part["name"] for part in found["outputs"]]

            def row(values):
                return numpy.concatenate([numpy.asarray(values[output]).reshape(len(x), -1) for output in outputs], 1)

            with self.subTest(name, tool="keras"):
                model = keras_model.load(*self.both_files(name))
                self.assert_close(row(model.predict(inputs, verbose=0)), y)
                keras_model.save(model, self.file(name, "back"))
                self.check_back({name: y})
            with self.subTest(name, tool="pytorch"), torch.no_grad():
                model = torch_model.load(*self.both_files(name))
                tensors = {part: torch.from_numpy(value) for part, value in inputs.items()}
                self.assert_close(row(model(tensors)), y)
                for tensor in model.state_dict().values():
                    tensor.mul_(0.9).add_(0.01)
                changed = row(model(tensors))
                self.assert_changed(name, changed)
                torch_model.save(model, self.file(name, "back"))
                self.check_back({name: changed})
            with self.subTest(name, tool="onnx"):
                onnx.checker.check_model(self.file(name, "onnx"), full_check=True)
                session = onnxruntime.InferenceSession(self.file(name, "onnx"), providers=["CPUExecutionProvider"])
                self.assertEqual({i.name: i.shape[1:] for i in session.get_inputs()},
                                 {part["name"]: part["shape"] for part in found["inputs"]})
                self.assertEqual([o.shape[1:] for o in session.get_outputs()], [part["shape"] for part in found["outputs"]])
                self.assert_close(row(dict(zip(outputs, session.run(outputs, inputs)))), y)

    def test_onnx_transposes_only_at_the_borders(self):
        def operators(name):
            return [node.op_type for node in onnx.load(self.file(name, "onnx")).graph.node]
        self.assertEqual(operators("mnist_cnn"), ["Transpose", "Conv", "Relu", "MaxPool", "Transpose", "Reshape", "MatMul",
                                                  "Add", "Relu", "MatMul", "Add", "Identity"])
        self.assertEqual(operators("resnet20").count("Transpose"), 1)  # the input; the pooling reads channels first
        self.assertEqual(operators("training_only").count("Transpose"), 2)

    def test_commands(self):
        def run(tool, *arguments):
            return subprocess.run([sys.executable, TOOLS / f"{tool}.py", *arguments], capture_output=True, text=True)
        architecture, weights = self.both_files("training_only")
        keras_file, back = self.file("training_only", "keras"), self.file("training_only", "command")
        for arguments in (("load", architecture, weights, keras_file), ("save", keras_file, back)):
            done = run("keras_model", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
        architecture, weights = self.both_files("branches")
        for arguments in (("load", architecture, weights, keras_file), ("save", keras_file, back)):
            done = run("keras_model", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
        written, original = load_file(back), load_file(weights)
        self.assertEqual(set(written), set(original))
        for name, tensor in original.items():
            self.assertTrue((written[name] == tensor).all(), name)
        done = run("torch_model", architecture, weights)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ConvTranspose2d", done.stdout)
        for tool, arguments in (("torch_model", ()), ("keras_model", ("load",))):
            more = () if tool == "torch_model" else (keras_file,)
            done = run(tool, *arguments, weights, weights, *more)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"{weights}: not JSON", done.stderr)
            self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_files_that_do_not_fit(self):
        architecture, weights = self.both_files("dense")
        tensors = load_file(weights)
        wrong = {
            "tensor 'dense/kernel' is missing": {k: v for k, v in tensors.items() if k != "dense/kernel"},
            "tensor 'dense/bias' has shape [4], but the architecture's is [5]": {**tensors, "dense/bias": tensors["dense/bias"][:4]},
            "tensor 'extra' is not in the architecture": {**tensors, "extra": tensors["dense/bias"]},
        }
        path = self.file("dense", "wrong")
        for text, content in wrong.items():
            save_file(content, path)
            for tool in keras_model, torch_model:
                with self.subTest(text, tool=tool.__name__), self.assertRaises(ModelFileError) as raised:
                    tool.load(architecture, path)
                self.assertIn(text, str(raised.exception))
        text = pathlib.Path(architecture).read_text("utf-8")
        for before, after, fact in (('"class_name": "Flatten"', '"class_name": "Flat"', "Flat"),
                                    ('"activation": "sigmoid"', '"activation": "sigmund"', "sigmund"),
                                    ('"units": 5', '"units": 7', "dense"), ('"units": 5', '"unit": 5', "dense")):
            self.assertIn(before, text)
            pathlib.Path(path).write_text(text.replace(before, after, 1), "utf-8")
            for tool in keras_model, torch_model:
                with self.subTest(after, tool=tool.__name__), self.assertRaises(ModelFileError) as raised:
                    tool.load(path, weights)
                self.assertIn(fact, str(raised.exception))


    def test_hostile_architectures(self):
        """Each is refused on one line with its path and layer, and none loads with values that the files do not have."""
        def dense(a):
            return a["layers"][0]

        def without_bias(a):
            dense(a)["parameters"].pop()

        def swapped(a):
            dense(a)["parameters"][0]["shape"].reverse()
        path, weights = self.file("hostile", "json"), self.file("hostile", "safetensors")
        for change, fact in (
                (lambda a: a.pop("name"), "'name' is not a string"),
                (lambda a: dense(a)["config"].update(units=10**13), "layer 'dense'"),
                (lambda a: dense(a)["config"].update(units=-1), "layer 'dense'"),
                (lambda a: dense(a)["config"].update(activation=[1]), "layer 'dense'"),
                (lambda a: dense(a).update(class_name="Conv2D"), "layer 'dense'"),
                (lambda a: dense(a).update(class_name="MaxPooling1D", parameters=[],
                                           config={"pool_size": [2], "strides": [0], "padding": "same"}), "layer 'dense'"),
                (lambda a: dense(a).update(inputs=["input"] * 2, input_shapes=[[4, 6]] * 2), "layer 'dense'"),
                (lambda a: a["layers"][-1].update(output_shape=[7]), "layer 'dense_3' has the output shape [3]"),
                (without_bias, "layer 'dense' has the parameters ['bias', 'kernel']"), (swapped, "kernel' ")):
            described = json.loads(pathlib.Path(self.file("dense", "json")).read_text("utf-8"))
            change(described)
            pathlib.Path(path).write_text(json.dumps(described), "utf-8")
            save_file({p["name"]: numpy.ones(p["shape"], "float32") for layer in described["layers"]
                       for p in layer["parameters"]}, weights)
            for tool in keras_model, torch_model:
                with self.subTest(fact, tool=tool.__name__), self.assertRaises(ModelFileError) as raised:
                    tool.load(path, weights)
                self.assertIn(fact, str(raised.exception))
                self.assertTrue(str(raised.exception).startswith(f"{path}: "))
                self.assertEqual(len(str(raised.exception).splitlines()), 1)

    def test_weights_that_cannot_be_read_or_written(self):
        architecture, weights = self.both_files("names")
        header = b'{"dense/bias": {"dtype": "F8_E4M3", "shape": [5], "data_offsets": [0, 5]}}'
        broken = self.folder / "broken.safetensors"
        for content in (b"", b"\xff" * 40, len(header).to_bytes(8, "little") + header + bytes(5)):
            broken.write_bytes(content)
            for tool in keras_model, torch_model:
                with self.subTest(content, tool=tool.__name__), self.assertRaisesRegex(ModelFileError, "broken.safetensors"):
                    tool.load(architecture, broken)
        for tool in keras_model, torch_model:
            with self.subTest(tool=tool.__name__):
                model = tool.load(architecture, weights)
                with self.assertRaisesRegex(ModelFileError, "none/w.safetensors: No such file"):
                    tool.save(model, self.folder / "none/w.safetensors")
                tool.save(model, self.folder / "names.copy")
                self.assertEqual(set(load_file(self.folder / "names.copy")), set(load_file(weights)))
        self.assertEqual(list(self.folder.glob("*.part")), [])

    def test_models_that_changed_before_they_are_saved(self):
        architecture, weights = self.both_files("branches")
        back = self.file("branches", "changed")
        torch_model.save(torch_model.load(architecture, weights).to(torch.bfloat16), back)
        tensors = load_file(weights)
        for name, tensor in load_file(back).items():
            self.assertEqual(tensor.dtype, numpy.float32)
            numpy.testing.assert_allclose(tensor, tensors[name], rtol=1 / 256, err_msg=name)
        inner = keras.Sequential([keras.Input((4,)), keras.layers.Dense(4), keras.layers.Dense(4)])

        class Twice(keras.layers.Layer):
            def __init__(self):
                super().__init__(name="twice")
                self.first, self.second = inner.layers[-2:]

            def call(self, x):
                return self.second(self.first(x))
        with self.assertRaisesRegex(ModelFileError, "layer 'twice' has two variables called 'kernel'"):
            keras_model.save(keras.Sequential([keras.Input((4,)), Twice()]), back)


if __name__ == "__main__":
    unittest.main()
