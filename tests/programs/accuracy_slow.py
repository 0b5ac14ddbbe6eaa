"""accuracy.py with further seeds."""

import sys

import accuracy

if __name__ == "__main__":
    sys.exit(accuracy.main([2, 3]) != 0)
