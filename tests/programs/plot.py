"""`./dev plot`: the curves that it draws are those of the report, and what cannot be drawn is refused.

The values are read back from the picture, by the labels of its axes.
"""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys
import unittest
import xml.etree.ElementTree as xml

import contract

ROOT = pathlib.Path(__file__).resolve().parents[2]
SVG = "{http://www.w3.org/2000/svg}"


class Plot(contract.Case):
    def plot(self, *arguments, environment=None):
        return subprocess.run([ROOT / "dev", "plot", *map(str, arguments)], capture_output=True, text=True, cwd=self.dir,
                              timeout=60, env={**os.environ, "LOCKSTEP_NO_SETUP": "1", **(environment or {})})

    def write(self, name, report):
        path = self.dir / name
        path.write_text(report if isinstance(report, str) else json.dumps(report))
        return path

    def panels(self, path):
        """By name, each panel's curves, (is dashed, color, values); the values by interpolation between labels."""
        panels, name = {}, None
        for part in xml.parse(path).getroot():
            if part.tag == SVG + "text" and part.get("font-weight") == "bold":
                name = part.text
                panels[name] = {"labels": [], "lines": [], "dots": 0}
            elif name and part.tag == SVG + "text" and part.get("text-anchor") == "end":
                panels[name]["labels"].append((float(part.get("y")) - 4, float(part.text)))
            elif name and part.tag == SVG + "polyline":
                ys = [float(pair.split(",")[1]) for pair in part.get("points").split()]
                panels[name]["lines"].append(("stroke-dasharray" in part.attrib, part.get("stroke"), ys))
            elif name and part.tag == SVG + "circle":
                panels[name]["dots"] += 1
        for panel in panels.values():
            (y0, v0), (y1, v1) = panel["labels"][0], panel["labels"][-1]
            panel["lines"] = [(dashed, color, [v0 + (y - y0) * (v1 - v0) / (y1 - y0) for y in ys])
                              for dashed, color, ys in panel["lines"]]
        return panels

    def check_curve(self, found, expected):
        room = 0.01 * (max(expected) - min(expected)) + 1e-9
        self.assertEqual(len(found), len(expected))
        for a, b in zip(found, expected):
            self.assertAlmostEqual(a, b, delta=room)

    def test_a_run_of_a_program(self):
        report, _ = self.report("mnist", "--data", self.data(), "--epochs", 4, "--validate", "--optimizer", "adam", "--quiet")
        done = self.plot("report.json")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "report.svg\n", ""))
        panels = self.panels(self.dir / "report.svg")
        self.assertEqual(list(panels), ["loss", "accuracy"])
        for name, panel in panels.items():
            self.assertEqual([dashed for dashed, _, _ in panel["lines"]], [False, True])
            self.check_curve(panel["lines"][0][2], [epoch[name] for epoch in report["epochs"]])
            self.check_curve(panel["lines"][1][2], [epoch["val_" + name] for epoch in report["epochs"]])
        self.assertEqual(self.plot("report.json", "--steps", "-o", "steps.svg").returncode, 0)
        self.check_curve(self.panels(self.dir / "steps.svg")["loss"]["lines"][0][2], report["step_loss"])

    def test_several_reports_and_any_metric(self):
        a = self.write("a.json", {"epochs": [{"loss": 2, "auc": 0.5}, {"loss": 1, "auc": 0.7}]})
        b = self.write("b.json", {"epochs": [{"loss": 3}, {"loss": 2.5}, {"loss": 0.5}]})
        self.assertEqual(self.plot(a, b, "--output", "both.svg").returncode, 0)
        panels = self.panels(self.dir / "both.svg")
        self.assertEqual(list(panels), ["loss", "auc"])
        self.assertEqual([len(panel["lines"]) for panel in panels.values()], [2, 1])
        self.assertNotEqual(panels["loss"]["lines"][0][1], panels["loss"]["lines"][1][1])  # colours
        self.check_curve(panels["loss"]["lines"][1][2], [3, 2.5, 0.5])
        reported = xml.parse(self.dir / "both.svg").getroot().itertext()
        self.assertTrue({"a", "b"} <= set(reported))

    def test_equal_curves_are_all_visible_with_overlay(self):
        paths = [self.write(name, {"epochs": [{"loss": 2}, {"loss": 1}]}) for name in ("a.json", "b.json", "c.json")]
        for options, expected in (((), ["2"] * 3), (("--overlay",), ["6.5", "4", "1.5"])):
            self.assertEqual(self.plot(*paths, *options, "-o", "c.svg").returncode, 0)
            lines = xml.parse(self.dir / "c.svg").getroot().iter("{http://www.w3.org/2000/svg}polyline")
            self.assertEqual([line.get("stroke-width") for line in lines], expected)
            dots = xml.parse(self.dir / "c.svg").getroot().iter("{http://www.w3.org/2000/svg}circle")
            self.assertEqual(len({dot.get("r") for dot in dots}), len(set(expected)))

    def test_gaps_and_single_points(self):
        path = self.write("a.json", {"epochs": [{"loss": 1}, {"loss": None}, {"loss": 3, "val_loss": 2}, {"loss": 4}]})
        self.assertEqual(self.plot(path).returncode, 0)
        loss = self.panels(path.with_suffix(".svg"))["loss"]
        self.assertEqual(len(loss["lines"]), 1)  # 3 and 4
        self.assertEqual(loss["dots"], 4)
        self.assertEqual(self.plot(self.write("one.json", {"epochs": [{"loss": 1}]})).returncode, 0)

    def test_png(self):
        path = self.write("a.json", {"epochs": [{"loss": 2}, {"loss": 1}]})
        if shutil.which("rsvg-convert"):
            self.assertEqual(self.plot(path, "-o", "a.png").returncode, 0)
            self.assertEqual((self.dir / "a.png").read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
        tools = self.dir / "tools"
        tools.mkdir()
        (tools / "python3").symlink_to(os.path.realpath(sys.executable))
        for tool in ("bash", "dirname"):
            (tools / tool).symlink_to(os.path.realpath(shutil.which(tool)))
        (self.dir / "b.png").write_text("kept")
        done = self.plot(path, "-o", "b.png", environment={"PATH": str(tools)})
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^lockstep-plot: b\.png: PNG needs the program rsvg-convert.*librsvg2-bin")
        self.assertEqual((self.dir / "b.png").read_text(), "kept")

    def test_what_is_no_report_is_refused(self):
        good = self.write("good.json", {"epochs": [{"loss": 2}, {"loss": 1}]})
        for name, arguments, says in (
            ("absent", ["nowhere.json"], "nowhere.json: no such file"),
            ("no JSON", [self.write("x.json", "loss: 1")], "x.json: is not JSON"),
            ("a list", [self.write("y.json", [1])], "y.json: is not a report of a training run"),
            ("other JSON", [self.write("z.json", {"a": 1})], "z.json: is not a report of a training run"),
            ("an error", [self.write("e.json", {"error": "no data"})], "ends with the error 'no data'"),
            ("no epoch", [self.write("n.json", {"epochs": []})], "no finished epoch"),
            ("a text", [self.write("t.json", {"epochs": [{"loss": "low"}]})], "'loss' holds \"low\""),
            ("no number", [self.write("f.json", '{"epochs": [{"loss": NaN}]}')], "no number to draw"),
            ("no steps", [good, "--steps"], "no steps"),
            ("steps", [self.write("s.json", {"epochs": [], "step_loss": 3}), "--steps"], "'step_loss' is not a list"),
            ("kind", [good, "-o", "a.jpg"], "a.jpg: the name of a picture must end in .svg or .png"),
            ("folder", [good, "-o", "none/a.svg"], "none/a.svg: no such file"),
        ):
            with self.subTest(name):
                done = self.plot(*arguments)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertTrue(done.stderr.startswith("lockstep-plot: "), done.stderr)
                self.assertIn(says, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
        self.assertEqual(self.plot().returncode, 2)
        self.assertEqual(self.plot(good, "--smooth").returncode, 2)
        self.assertEqual(list(self.dir.glob("*.svg")), [])

    def test_the_timeline_of_a_step(self):
        def event(name, category, begin, duration, step=4, thread=0):
            return {"name": name, "cat": category, "ph": "X", "ts": begin, "dur": duration, "pid": 0, "tid": thread,
                    "args": {"step": step}}

        names = [{"name": "thread_name", "ph": "M", "pid": 0, "tid": tid, "args": {"name": f"replica {tid}"}} for tid in (0, 3)]
        events = [event("step", "loop", 100, 200), event("step", "loop", 400, 50, 5), event("step", "loop", 500, 900, 6),
                  event("dense", "forward", 110, 50), event("dense", "backward", 200, 100, thread=3),
                  event("late", "forward", 410, 10, 5)]
        path = self.write("t.json", {"traceEvents": names + events})
        done = self.plot(path, "--timeline")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        root = xml.parse(path.with_suffix(".svg")).getroot()
        self.assertEqual(root.find(SVG + "title").text, "step 4, 200 us")  # of median duration
        boxes = [b for b in root.iter(SVG + "rect") if b.find(SVG + "title") is not None]
        self.assertEqual([b.find(SVG + "title").text for b in boxes], ["dense, forward: 50.0 us", "dense, backward: 100.0 us"])
        (x, width), (x2, width2) = ((float(b.get("x")), float(b.get("width"))) for b in boxes)
        self.assertAlmostEqual(width2 / width, 2, delta=0.01)
        self.assertAlmostEqual((x2 - x) / width, 90 / 50, delta=0.01)
        self.assertNotEqual(boxes[0].get("y"), boxes[1].get("y"))
        self.assertNotEqual(boxes[0].get("fill"), boxes[1].get("fill"))
        self.assertTrue({"rank 0, replica 0", "rank 0, replica 3", "forward", "backward"} <= set(root.itertext()))
        for name, content, expected in (("absent", None, "no such file"), ("list", [1], "is not a trace"),
                                        ("report", {"epochs": []}, "is not a trace"),
                                        ("no number", {"traceEvents": [*names, {**events[0], "args": {}}]}, "is not a trace"),
                                        ("no time", {"traceEvents": [*names, event("step", "loop", math.nan, 1)]}, "is not a trace"),
                                        ("no duration", {"traceEvents": [*names, event("step", "loop", 1, 0)]}, "is not a trace"),
                                        ("thread", {"traceEvents": [{**names[0], "tid": "x"}]}, "is not a trace"),
                                        ("no step", {"traceEvents": names}, "has no step")):
            with self.subTest(name):
                wrong = self.dir / "nowhere.json" if content is None else self.write("w.json", content)
                done = self.plot(wrong, "--timeline")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(expected, done.stderr)
        self.assertEqual(self.plot(path, path, "--timeline").returncode, 2)

    def rectangles(self, path):
        """The plan's rectangles as (name, first time, time after the last one, offset, end), by the labels of the axes."""
        root = xml.parse(path).getroot()
        units = {"B": 1, "KB": 2**10, "MB": 2**20, "GB": 2**30}
        labels = [(float(t.get("y")) - 4, t.text.split(" ")) for t in root.findall(SVG + "text") if t.get("text-anchor") == "end"]
        (y0, (v0, u0)), (y1, (v1, u1)) = labels[0], labels[-1]
        per_pixel = (float(v1) * units[u1] - float(v0) * units[u0]) / (y0 - y1)
        places = [g.get("transform") for g in root.iter(SVG + "g")]
        xs = [float(p.split("(")[1].split(" ")[0]) - 4 for p in places]  # the middle of each time
        wide = (xs[-1] - xs[0]) / (len(xs) - 1)
        found = []
        for r in root.iter(SVG + "rect"):
            if (title := r.find(SVG + "title")) is None:
                continue
            x, y, width, height = (float(r.get(k)) for k in ("x", "y", "width", "height"))
            times = [round((at - xs[0]) / wide + 0.5, 2) for at in (x, x + width)]
            found.append((title.text, *times, *((y0 - at) * per_pixel for at in (y + height, y))))
        return found, [g.find(SVG + "text").text for g in root.iter(SVG + "g")]

    def test_the_memory_plan_of_a_program(self):
        report, _ = self.report("mnist", "--data", self.data(), "--epochs", 1, "--batch", 50, "--optimizer", "adam", "--quiet")
        plan = report["memory_plan"]
        self.assertEqual(plan["examples"], 50)
        self.assertEqual(plan["weight_bytes"], 4 * report["parameters"])
        done = self.plot("report.json", "--plan")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "report.svg\n", ""))
        found, times = self.rectangles(self.dir / "report.svg")
        self.assertEqual(times, plan["times"])
        self.assertEqual(times[0], "conv2d+re_lu+max_pooling2d forward")  # as fused on the CPU
        self.assertEqual([t for t in times if "backward" in t], [t.replace("forward", "backward") for t in times[2::-1]])
        self.assertEqual(len(found), len(plan["buffers"]))
        room = plan["arena_bytes"] / 4000  # of a tenth of a pixel
        for (name, begin, end, low, high), b in zip(found, plan["buffers"], strict=True):
            self.assertTrue(name.startswith(f"{b['layer']} {b['what']}: "), name)
            self.assertEqual((begin, end), (b["from"], b["to"] + 1))
            self.assertAlmostEqual(low, b["offset"], delta=room)
            self.assertAlmostEqual(high, b["offset"] + b["bytes"], delta=room)
        for i, (name, begin, end, low, high) in enumerate(found):
            for other, begin2, end2, low2, high2 in found[:i]:
                self.assertTrue(end <= begin2 or end2 <= begin or high <= low2 + room or high2 <= low + room, (name, other))
        # The model's own figure: the arena is what it allocates, with weights, gradients and Adam's two slots.
        self.assertAlmostEqual(max(high for *_, high in found), plan["arena_bytes"], delta=room)
        self.assertGreaterEqual(report["peak_bytes"]["planned"], plan["arena_bytes"] + 4 * plan["weight_bytes"])
        self.assertLess(report["peak_bytes"]["planned"], plan["arena_bytes"] + 4 * plan["weight_bytes"] + 2**20)
        svg = (self.dir / "report.svg").read_text()
        self.assertIn('class="peak"', svg)
        self.assertIn(f"peak {plan['arena_bytes'] / 2**20:.2f} MB", svg)

    def test_the_memory_plan_of_each_slice_and_what_is_no_plan(self):
        report, _ = self.report("mnist_mirrored", "--data", self.data(), "--take", 64, "--epochs", 1, "--batch", 63, "--replicas", 2,
                                "--quiet")
        self.assertEqual(report["memory_plan"]["examples"], 32)  # of the first replica
        plan = {"examples": 1, "arena_bytes": 128, "unshared_bytes": 128, "weight_bytes": 0, "gradient_bytes": 0, "state_bytes": 0,
                "times": ["<a> forward", "loss"],
                "buffers": [{"layer": '<a> & "b"', "what": "output", "from": 0, "to": 1, "offset": 0, "bytes": 128}]}
        self.assertEqual(self.plot(self.write("p.json", plan), "--plan").returncode, 0)  # a plan alone
        found, times = self.rectangles(self.dir / "p.svg")
        self.assertTrue(found[0][0].startswith('<a> & "b" output: 128 B at 0 B, from <a> forward to loss'), found)
        for name, content, expected in (("absent", None, "no such file"), ("report", {"epochs": []}, "has no memory plan"),
                                        ("list", [1], "has no memory plan"), ("no buffer", {**plan, "buffers": []}, "no buffer"),
                                        ("beyond", {**plan, "arena_bytes": 64}, "has no memory plan"),
                                        ("late", {**plan, "times": ["loss"]}, "has no memory plan"),
                                        ("text", {**plan, "weight_bytes": "1"}, "has no memory plan"),
                                        ("no size", {k: plan[k] for k in plan if k != "state_bytes"}, "has no memory plan")):
            with self.subTest(name):
                wrong = self.dir / "nowhere.json" if content is None else self.write("w.json", content)
                done = self.plot(wrong, "--plan")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(expected, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1)
        self.assertEqual(self.plot("p.json", "p.json", "--plan").returncode, 2)
        self.assertEqual(self.plot("p.json", "--plan", "--timeline").returncode, 2)

    def test_the_scaling_of_replicas(self):
        paths = [self.write(f"{n}.json", {"epochs": [], "replicas": n, "batch": batch, "step_ms": {"median": ms}})
                 for n, batch, ms in ((4, 256, 25), (1, 64, 20), (2, 64, 12.5))]
        done = self.plot(*paths, "--scaling", "-o", "s.svg")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        panels = self.panels(self.dir / "s.svg")
        self.assertEqual(list(panels), ["examples per second", "share of proportional"])
        measured, proportional = panels["examples per second"]["lines"]
        self.assertEqual((measured[0], proportional[0]), (False, True))
        self.check_curve(measured[2], [3200, 5120, 10240])
        self.check_curve(proportional[2], [3200, 6400, 12800])
        self.check_curve(panels["share of proportional"]["lines"][0][2], [1, 0.8, 0.8])
        self.assertTrue({"replicas", "measured", "proportional"} <= set(xml.parse(self.dir / "s.svg").getroot().itertext()))
        for name, arguments, expected in (("twice", [paths[0], paths[0]], "another report also has 4 replicas"),
                                          ("no times", [self.write("n.json", {"epochs": []})], "'step_ms'")):
            with self.subTest(name):
                done = self.plot(*arguments, "--scaling")
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(expected, done.stderr)
        self.assertEqual(self.plot(*paths, "--scaling", "--steps").returncode, 2)

    def test_help_names_the_commands(self):
        done = subprocess.run([ROOT / "dev", "help"], capture_output=True, text=True)
        for name in ("plot REPORT.json", "docs "):
            self.assertIn(f"\n  {name}", done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=1)
