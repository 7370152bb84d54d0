"""`robot-rl train`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
