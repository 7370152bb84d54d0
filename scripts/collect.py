"""`robot-rl collect`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["collect", *sys.argv[1:]])
