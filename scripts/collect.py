"""`robot-rl collect`."""

from robot_rl.cli.collect import main

if __name__ == "__main__":
    main()
