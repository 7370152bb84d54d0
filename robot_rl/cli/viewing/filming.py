"""A film and a contact sheet of worlds that somebody plays."""

from pathlib import Path

from sim.viewing.player import Player


def film(
    player: Player, path: Path, *, title: str, worlds: int, seconds: float = 0.0, longest: float
) -> dict[str, str]:
    """Film the first worlds and draw their contact sheet; returns where each lies.

    Args:
        player: Plays on from where it is.
        path: The mp4 to write; the sheet lies beside it as a PNG.
        title: Written into both.
        worlds: How many are seen; of fewer, all.
        seconds: Length of the film [s]; 0 for one episode, but `longest` at most.
        longest: Of a film whose length nobody chose [s].

    Raises:
        RenderUnavailableError: Nothing can be drawn on this machine.
        StorageError: A file cannot be written.
    """
    from sim.film.recording import record_worlds  # drawing is not for all
    from sim.film.worlds_film import contact_sheet, render_film

    length = seconds or min(player.env.task.episode_steps * player.control_dt, longest)
    seen = min(worlds, player.env.spec.num_envs)
    recording = record_worlds(player, worlds=seen, seconds=length)
    return {
        "video": str(render_film(recording, path, title=title)),
        "contact sheet": str(contact_sheet(recording, path.with_suffix(".png"), title=title)),
    }
