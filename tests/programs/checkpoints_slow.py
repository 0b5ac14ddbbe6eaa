"""The kills of checkpoints.py, many more of them, in longer runs."""

import unittest

import checkpoints


class ManyKills(checkpoints.Killed):
    kills, worker_kills, epochs, worker_epochs = 50, 20, 700, 400


if __name__ == "__main__":
    unittest.main(verbosity=1)
