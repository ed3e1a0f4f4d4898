"""What the Python of an image is asked to run: it says what it is and what it has.

It may be older or newer than ours, has nothing of ours, and writes one line of JSON behind a mark.
"""

from __future__ import annotations

from typing import Final

MARK: Final = "\ntiercel-layer "

PROGRAM: Final = r"""
import importlib.metadata
import importlib.util
import json
import os
import platform
import site
import subprocess
import sys
import sysconfig


def libc():
    try:
        found = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
    except (OSError, ValueError, AttributeError):
        found = []
    if len(found) == 2:
        return found
    loader = "/lib/ld-musl-%s.so.1" % platform.machine()
    if not os.path.exists(loader):
        return ["", ""]
    said = subprocess.run([loader], stderr=subprocess.PIPE, check=False).stderr.decode(errors="replace").split()
    return ["musl", said[said.index("Version") + 1] if "Version" in said else ""]


def distributions():
    found = []
    for each in importlib.metadata.distributions(path=[entry for entry in sys.path if entry]):
        try:
            found.append([each.metadata["Name"], each.version, each.requires, each.metadata.get_all("Provides-Extra")])
        except Exception:  # whatever is wrong with it, the others count
            continue
    return found


print(
    "\ntiercel-layer "
    + json.dumps(
        {
            "python": os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable),
            "version": platform.python_version(),
            "implementation": platform.python_implementation() + sys.abiflags,
            "abi": sysconfig.get_config_var("SOABI"),
            "magic": importlib.util.MAGIC_NUMBER.hex(),
            "machine": platform.machine(),
            "libc": libc(),
            "folders": [os.path.abspath(each) for each in site.getsitepackages() if os.path.isdir(each)],
            "distributions": distributions(),
        }
    )
)
"""
