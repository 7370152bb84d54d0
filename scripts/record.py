"""`robot-rl record`."""

from robot_rl.cli.record import main

if __name__ == "__main__":
    main()
