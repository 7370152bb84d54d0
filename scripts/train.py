"""`robot-rl train`."""

from robot_rl.cli.train import main

if __name__ == "__main__":
    main()
