"""`robot-rl doctor`."""

from robot_rl.cli.doctor import main

if __name__ == "__main__":
    main()
