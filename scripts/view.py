"""`robot-rl view`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["view", *sys.argv[1:]])
