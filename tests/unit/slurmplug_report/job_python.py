"""The Python in which a job's own code runs in tests: REPORT_PYTHON, such as a python3.8; else that of the tests."""

import os
import sys

PYTHON = os.environ.get("REPORT_PYTHON", sys.executable)
