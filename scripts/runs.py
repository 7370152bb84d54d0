"""`robot-rl runs`."""

from robot_rl.cli.runs import main

if __name__ == "__main__":
    main()
