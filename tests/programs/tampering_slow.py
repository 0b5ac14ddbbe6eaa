"""Cases of tampering.py that take long."""

import unittest

import tampering


def load_tests(loader, tests, pattern):
    return unittest.TestSuite([tampering.Tampering("check_the_first_frames")])


if __name__ == "__main__":
    unittest.main(verbosity=1)
