"""`python -m robot_rl` is the command `robot-rl`."""

from robot_rl.cli.main import main

if __name__ == "__main__":
    main()
