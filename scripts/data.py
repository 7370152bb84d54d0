"""`robot-rl data`."""

import sys

from robot_rl.cli.main import main

if __name__ == "__main__":
    main(["data", *sys.argv[1:]])
