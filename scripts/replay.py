"""`robot-rl replay`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["replay", *sys.argv[1:]])
