"""gpt, gpt_mirrored and gpt_multi_worker, with real processes on this machine."""

import json
import math
import re
import struct
import unittest

import contract
import multi_worker

SMALL = ["--steps-per-epoch", 3, "--epochs", 1, "--batch", 8, "--threads", 1, "--quiet"]
WORDS = re.compile(r"std::string_view, 16> (nouns|verbs)\{(.*?)\}", re.DOTALL)


def grammar():
    """The nouns and the verbs of the generated text."""
    source = (contract.ROOT / "programs/support/text.cpp").read_text()
    return {name: re.findall(r'"(\w+)"', words) for name, words in WORDS.findall(source)}


def entropy():
    """Nats per character of the generated text: what the choices of a sentence have, by its expected length."""
    mean = {name: sum(map(len, words)) / 16 for name, words in grammar().items()}
    noun, verb = math.log(16) + math.log(2), math.log(16)
    clause = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    nats = noun + clause + 0.25 * (noun + verb) + verb + math.log(2) + 0.5 * noun
    phrase, form = len("the ") + mean["nouns"] + 0.5, mean["verbs"] + 0.5  # half of them have an s
    return nats / (phrase + 0.25 * (len(" that  ") + phrase + form) + len(" ") + form + 0.5 * (len(" ") + phrase) + len(".\n"))


class Gpt(multi_worker.Case):
    program = "gpt_multi_worker"

    def file(self, name, content):
        path = self.dir / name
        path.write_bytes(content)
        return path

    def generated(self, *options):
        done = contract.run("gpt", "--generate", 60, "--quiet", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_the_generated_grammar_is_learnt_and_continued(self):
        weights = self.dir / "w.safetensors"
        greedy = ["--prompt", "the cats that", "--temperature", 0]
        report, done = self.report("gpt", "--epochs", 2, "--validate", "--progress", "plain", "--save", weights, "--generate", 60, *greedy)
        expected = {"program": "gpt", "strategy": "one_device", "batch": 32, "steps": 2 * 106, "parameters": 120_576, "seed": 1}
        self.assertEqual({key: report[key] for key in expected}, expected)
        self.assertAlmostEqual(report["tokens_per_second"], 32 * 64 * 1000 / report["step_ms"]["median"], delta=1)
        least = float(re.search(r"which has (\S+) nats per character", done.stderr)[1])
        self.assertAlmostEqual(least, entropy(), delta=0.005)
        self.assertAlmostEqual(report["step_loss"][0], math.log(256), delta=0.1)
        self.assertGreater(report["epochs"][-1]["val_loss"], least)
        self.assertLess(report["epochs"][-1]["val_loss"], least + 0.25)
        self.assertTrue(done.stdout.endswith(report["generated"] + "\n"))
        self.assertTrue(report["generated"].startswith("the cats that the "))
        self.assertEqual(len(report["generated"]), len("the cats that") + 60)

        self.assertEqual(self.generated("--init", weights, *greedy), report["generated"] + "\n")
        self.assertEqual(self.generated("--init", weights, *greedy[:2], "--top-k", 1), report["generated"] + "\n")
        drawn = [self.generated("--init", weights, "--seed", seed) for seed in (3, 3, 4)]
        self.assertEqual(drawn[0], drawn[1])
        self.assertNotEqual(drawn[0], drawn[2])
        words = grammar()
        known = {"the", "that", *(w + s for w in words["nouns"] + words["verbs"] for s in ("", "s"))}
        found = re.findall(r"\w+", drawn[0] + drawn[2])[:-1]
        self.assertGreater(sum(word in known for word in found), 0.8 * len(found), drawn)
        for context in (64, 16, 1):  # the text goes on after its end
            self.assertEqual(len(self.generated("--init", weights, "--context", context, "--prompt", "a" * 70)), 70 + 60 + 1)
        self.assertEqual(len(self.generated("--init", weights, "--temperature", "1e300", "--top-k", 5)), 1 + 60 + 1)
        event = json.loads(contract.run("gpt", "--init", weights, "--generate", 5, "--progress", "json").stdout)
        self.assertEqual((event["event"], len(event["text"])), ("generated", 6))

    def test_a_killed_run_is_resumed(self):
        options = [*SMALL[4:-1], "--steps-per-epoch", 6, "--epochs", 30, "--progress", "json"]
        whole, _ = self.report("gpt", *options)
        options += ["--checkpoint", self.dir / "checkpoints", "--checkpoint-every", 5]
        job = self.start(multi_worker.BIN / "gpt", *options)
        self.await_text(job, '"step":13')
        job.kill()
        rest, _ = self.report("gpt", *options, "--resume")
        self.assertGreaterEqual(rest["first_step"], 10)
        self.assertEqual(rest["step_loss"], whole["step_loss"][rest["first_step"]:])
        self.assertEqual(rest["weights_sha256"], whole["weights_sha256"])

    def test_tokens_of_a_file_are_those_of_a_text(self):
        text = bytes(range(32, 127)) * 9
        tokens = struct.pack(f"<{len(text)}H", *text)
        header = struct.pack("<256i", 20240520, 1, len(text), *[0] * 253)
        digests = set()
        for name, content in (("a.txt", text), ("a.bin", tokens), ("b.bin", header + tokens)):
            report, _ = self.report("gpt", "--data", self.file(name, content), "--validate", "--epochs", 2, "--batch", 5, "--quiet")
            self.assertEqual(report["steps"], 2 * math.ceil((855 - 85 - 1) // 64 / 5))
            digests.add((report["weights_sha256"], tuple(report["step_loss"])))
        self.assertEqual(len(digests), 1)
        for name, content, says in (("a.bin", tokens[:-1], "1709 bytes"), ("a.bin", struct.pack("<H", 256) + tokens, "token 0 is 256"),
                                    ("a.bin", header + tokens[2:], "announces 855 tokens"), ("a.txt", text[:60], "60 tokens"),
                                    ("a.bin", b"", "is empty"), ("a.txt", text[:600], "60 are for validation")):
            with self.subTest(says):
                path = self.file(name, content)
                report, done = self.report("gpt", "--data", path, "--validate", "--quiet", code=1)
                self.assertIn(says, report["error"])
                self.assertIn(str(path), done.stderr)
        self.assertIn("nowhere.bin", self.report("gpt", "--data", self.dir / "nowhere.bin", code=1)[0]["error"])

    def test_a_shorter_context_pads_the_windows(self):
        report, _ = self.report("gpt", "--context", 16, *SMALL)
        self.assertAlmostEqual(report["step_loss"][0], math.log(256), delta=0.1)
        self.assertAlmostEqual(report["tokens_per_second"], 8 * 16 * 1000 / report["step_ms"]["median"], delta=1)

    def test_llama_and_muon(self):
        report, _ = self.report("gpt", "--style", "llama", "--optimizer", "muon", "--accumulate", 2, *SMALL[:1], 40, *SMALL[2:])
        gated = 192
        self.assertEqual(report["parameters"], 256 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * gated + 2 * 64) + 64)
        self.assertLess(report["step_loss"][-1], 0.8 * report["step_loss"][0])

    def test_replicas_and_workers_have_the_same_bits(self):
        options = [*SMALL[:6], "--quiet", "--virtual-shards", 2]
        reports = [self.report("gpt_mirrored", *options, "--replicas", n)[0] for n in (1, 2)]
        for job in self.workers(2, *options, "--generate", 8):
            self.ends(job, 0)
        reports.append(self.report_of("r0.json"))
        self.assertEqual([r["strategy"] for r in reports], ["mirrored", "mirrored", "multi_worker_mirrored"])
        self.assertEqual([r["replicas"] for r in reports], [1, 2, 2])
        self.assertEqual(len({(r["weights_sha256"], tuple(r["step_loss"])) for r in reports}), 1)
        self.assertEqual([r["optimizer_bytes"] for r in reports], [2 * 4 * 120_576 * n for n in (1, 2, 1)])
        self.assertGreater(reports[2]["wire_bytes"], 4 * 120_576)
        self.assertEqual((reports[2]["update"], reports[2]["wire"]), ("replicated", "float32"))
        self.assertEqual(len(reports[2]["generated"]), 9)

    def test_what_is_wrong_is_refused(self):
        for options, text in ((["--context", 65], "--context 65"), (["--size", "10m"], "this program was built with --size tiny"),
                              (["--size", "1b"], "--size"), (["--optimizer", "sgd"], "--optimizer"), (["--generate", 0], "--generate"),
                              (["--prompt", "a"], "--generate"), (["--generate", 1, "--temperature", "-1"], "--temperature"),
                              (["--generate", 1, "--top-k", 0], "--top-k"), (["--accumulate", 0], "--accumulate")):
            with self.subTest(text):
                done = contract.run("gpt", *options)
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(text, done.stderr)
        done = contract.run("gpt", "--init", self.dir / "none.safetensors", "--generate", 1)
        self.assertEqual(done.returncode, 1)
        self.assertIn("none.safetensors", done.stderr)


if __name__ == "__main__":
    unittest.main()
