"""The kills of checkpoints.py, many more of them, in longer runs."""

import unittest

import checkpoints
import cifar10


class ManyKills(checkpoints.Killed):
    kills, worker_kills, epochs, worker_epochs = 50, 20, 700, 400


class Cifar10(cifar10.Case, checkpoints.Case):
    def test_a_run_with_augmentation_that_is_killed_again_and_again_ends_with_the_bits_of_a_quiet_one(self):
        self.survives("cifar10", ["--depth", 20, "--threads", 1, "--data", self.folder, "--take", 80, "--batch", 8, "--epochs", 20,
                                  "--progress", "json"], 20)


if __name__ == "__main__":
    unittest.main(verbosity=1)
