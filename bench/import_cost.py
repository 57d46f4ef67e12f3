"""What `import thruway` costs beyond `import torch`, in milliseconds: the cumulative figure of -X importtime, smallest of some runs.

usage: python bench/import_cost.py [RUNS]
"""

import re
import subprocess
import sys


def once():
    done = subprocess.run([sys.executable, "-X", "importtime", "-c", "import torch, thruway"], capture_output=True, text=True, check=True)
    found = re.search(r"\|\s*(\d+) \| thruway$", done.stderr, re.M)
    return int(found[1]) / 1e3


if __name__ == "__main__":
    print(f"{min(once() for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 5)):.1f} ms")
