"""`robot-rl evaluate`."""

from robot_rl.cli.evaluate import main

if __name__ == "__main__":
    main()
