"""Cases of network.py that take long."""

import unittest

import network


def load_tests(loader, tests, pattern):
    return unittest.TestSuite([network.Cables("check_silence_that_was_set"),
                               network.Cables("check_a_cut_of_half_a_minute_between_synchronisations")])


if __name__ == "__main__":
    unittest.main(verbosity=1)
