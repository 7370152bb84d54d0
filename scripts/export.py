"""`robot-rl export`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["export", *sys.argv[1:]])
