"""Run a peer's program with packages from a folder: `python from_folder.py FOLDER PROGRAM [ARGUMENTS]`."""

from __future__ import annotations

import runpy
import sys

folder, program, *_ = sys.argv[1:]
sys.argv = sys.argv[2:]
sys.path.insert(0, folder)
runpy.run_path(program, run_name="__main__")
