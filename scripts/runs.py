"""`robot-rl runs`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["runs", *sys.argv[1:]])
