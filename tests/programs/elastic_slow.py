"""Cases of elastic.py that take long."""

import unittest

import elastic


def load_tests(loader, tests, pattern):
    return unittest.TestSuite([case(name) for case in (elastic.Workers, elastic.Partitions) for name in dir(case)
                               if name.startswith("check_")])


if __name__ == "__main__":
    unittest.main(verbosity=1)
