"""`robot-rl replay`."""

from robot_rl.cli.replay import main

if __name__ == "__main__":
    main()
