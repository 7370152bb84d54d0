from policies.env_policy import load_policy as load_policy
from robot_rl.cli.api import Policy as Policy
from robot_rl.cli.api import Report as Report
from robot_rl.cli.api import TrainedRun as TrainedRun
from robot_rl.cli.api import load_bundle as load_bundle
from robot_rl.cli.api import load_run as load_run
from robot_rl.cli.api import make_env as make_env
from robot_rl.cli.api import make_learner as make_learner
from robot_rl.cli.api import make_replay as make_replay
from robot_rl.cli.api import train as train

__version__: str
