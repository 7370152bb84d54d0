"""`robot-rl evaluate`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["evaluate", *sys.argv[1:]])
