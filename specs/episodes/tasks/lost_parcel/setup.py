"""A parcel went through several depots; each one's book says where it was sent."""

from random import Random

DEPOTS = ("harbour", "mill", "north", "station", "tower")


def setup(seed, env):
    route = Random(seed).sample(DEPOTS, 4)
    for here, there in zip(route, [*route[1:], None], strict=True):
        line = f"sent to {there}" if there else "here"
        env.write_file(f"/post/{here}.txt", f"parcel 41: {line}\n")
    env.write_file("/post/start.txt", f"parcel 41: sent to {route[0]}\n")
    env.mark_seen(["/post/start.txt"])
    env.set_hidden_state("depot", route[-1])
