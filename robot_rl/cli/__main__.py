"""`python -m robot_rl.cli` is `robot-rl`, as commands on the pages of the proofs name it."""

from robot_rl.cli.main import main

if __name__ == "__main__":
    main()
