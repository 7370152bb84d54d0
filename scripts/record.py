"""`robot-rl record`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["record", *sys.argv[1:]])
