"""`robot-rl data`."""

from robot_rl.cli.data import main

if __name__ == "__main__":
    main()
