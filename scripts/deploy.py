"""`robot-rl deploy`."""

from robot_rl.cli.deploy import main

if __name__ == "__main__":
    main()
