"""`robot-rl view`."""

from robot_rl.cli.view import main

if __name__ == "__main__":
    main()
