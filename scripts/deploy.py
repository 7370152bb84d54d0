"""`robot-rl deploy`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["deploy", *sys.argv[1:]])
