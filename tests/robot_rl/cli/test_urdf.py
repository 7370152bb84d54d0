"""`robot-rl urdf`: a robot's description, of its YAML or of a bundle."""

from xml.etree import ElementTree as Xml

import pytest

from robot_rl.cli.main import main
from scripts.bench.deployment.scripted import write_reaching_policy


def refused(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["urdf", *words])
    return int(ended.value.code or 0)


def test_a_robot_is_printed_by_its_name(capsys):
    main(["urdf", "robot=crazyflie"])
    root = Xml.fromstring(capsys.readouterr().out)
    assert (root.tag, root.get("name")) == ("robot", "crazyflie")


@pytest.mark.slow
def test_the_robot_of_a_bundle_is_written_to_a_file_and_another_one_if_asked(tmp_path, capsys):
    bundle = write_reaching_policy(tmp_path / "bundle")
    for words, name in (((), "panda"), (("robot=ur5e",), "ur5e")):
        main(["urdf", f"bundle={bundle}", f"out={tmp_path / name}", *words])
        assert str(tmp_path / name) in capsys.readouterr().out
        assert Xml.parse(tmp_path / name).getroot().get("name") == name


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which robot?"),
        (("robot=walker",), "known: allegro, cartpole, crazyflie"),
        (("robot=go2", "--ros-args", "-p", "use_sim_time:=true"), "use_sim_time cannot be"),
    ],
)
def test_what_cannot_be_described_is_refused_with_a_sentence(words, said, capsys):
    assert refused(*words) == 2
    assert said in capsys.readouterr().err
