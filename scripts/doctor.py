"""`robot-rl doctor`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["doctor", *sys.argv[1:]])
