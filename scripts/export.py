"""`robot-rl export`."""

from robot_rl.cli.export import main

if __name__ == "__main__":
    main()
