"""Cases of machines.py that take long."""

import unittest

import machines


class Memory(machines.Memory):
    def test_a_failed_allocation_anywhere_ends_the_job(self):
        self.check_failing_allocations(range(1500, 8500, 97))

    def test_a_worker_killed_for_lack_of_memory_is_reported_with_the_cause(self):
        self.check_hint_at_memory()


class Files(machines.Files):
    def test_a_chief_with_few_files_trains_or_reports_the_limit(self):
        self.check_few_files()


def load_tests(loader, tests, pattern):
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in (Memory, Files))


if __name__ == "__main__":
    unittest.main(verbosity=1)
