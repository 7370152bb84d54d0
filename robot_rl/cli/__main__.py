"""`python -m robot_rl.cli` is `robot-rl`."""

from robot_rl.cli.main import main

if __name__ == "__main__":
    main()
