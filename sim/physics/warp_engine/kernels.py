"""What the engine of MuJoCo Warp computes beside MuJoCo's own kernels, a thread per world."""

# Warp compiles these functions: their arguments are arrays of the device, not what pyright sees.
# pyright: reportAttributeAccessIssue=false, reportOperatorIssue=false, reportIndexIssue=false
# pyright: reportArgumentType=false

from sim.physics.warp_start import wp

LARGEST = wp.constant(1e10)
"""Positions, velocities and accelerations beyond this are given up, as by MuJoCo (mjMAXVAL)."""


@wp.func
def broken(values: wp.array2d[float], world: int) -> int:
    """How many entries of a row are too large or no numbers."""
    count = wp.int32(0)
    for i in range(values.shape[1]):
        if not wp.abs(values[world, i]) <= LARGEST:
            count += 1
    return count


@wp.kernel
def find_faults(
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    qacc: wp.array2d[float],
    overflow: wp.array[int],
    serious: int,
    bad: wp.array[bool],
    fault: wp.array[bool],
    overflowed: wp.array[int],
) -> None:
    """Tell worlds that ran away (`bad`), and all that mean nothing any more (`fault`)."""
    world = wp.tid()
    gone = broken(qpos, world) + broken(qvel, world) + broken(qacc, world)
    bits = overflow[world] & serious
    overflow[world] = 0
    overflowed[world] = overflowed[world] | bits
    bad[world] = gone > 0
    if gone > 0 or bits != 0:
        fault[world] = True


@wp.kernel
def present(
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    sensordata: wp.array2d[float],
    felt: wp.array2d[float],
    is_felt: wp.array[bool],
    force: wp.array2d[float],
    picked: wp.array[bool],
    beginning: bool,
    motion_out: wp.array2d[float],
    sensordata_out: wp.array2d[float],
    force_out: wp.array2d[float],
) -> None:
    """Lay out what callers read.

    In a step `picked` worlds have just been put back: they feel nothing. At a beginning only they
    feel anew, and the others keep what they felt.
    """
    world = wp.tid()
    nq = qpos.shape[1]
    for i in range(nq):
        motion_out[world, i] = qpos[world, i]
    for i in range(qvel.shape[1]):
        motion_out[world, nq + i] = qvel[world, i]
    feels = picked[world] == beginning
    for i in range(sensordata.shape[1]):
        if not is_felt[i]:
            sensordata_out[world, i] = sensordata[world, i]
        elif feels:
            sensordata_out[world, i] = felt[world, i]
        elif not beginning:
            sensordata_out[world, i] = 0.0
    for i in range(force.shape[1]):
        if feels:
            force_out[world, i] = force[world, i]
        elif not beginning:
            force_out[world, i] = 0.0
