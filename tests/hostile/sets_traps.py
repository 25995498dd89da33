"""Leaves in its directory what hurts who collects, reads or removes it. HOSTILE_VICTIM: a file of somebody else."""

import os
import signal

from _bounded import bound, say

bound()
victim = os.environ["HOSTILE_VICTIM"]
outside = os.path.dirname(victim)


def trap(what, make):
    try:
        make()
        say("set", what)
    except OSError as error:
        say("refused", what, error.errno)


def write(name, size=0):
    with open(name, "wb") as file:
        file.truncate(size)


trap("link", lambda: os.symlink(victim, "link.txt"))
trap("directory", lambda: os.symlink(outside, "linked"))
trap("dangling", lambda: os.symlink(os.path.join(outside, "made-by-a-trap"), "dangling.txt"))
trap("fifo", lambda: os.mkfifo("fifo.txt"))
trap("device", lambda: os.mknod("device.txt", 0o020666, os.makedev(1, 8)))
trap("hardlink", lambda: os.link(victim, "hard.txt"))
for name in (b"--force", b"..two", b"new\nline", b"\x1b[41mred", b"\xc3\x28", b"n" * 255, "\u202etxt.exe".encode()):
    trap("name", lambda name=name: write(name))
trap("sparse", lambda: write("sparse.txt", 1 << 40))
trap("locked", lambda: (os.mkdir("locked"), write("locked/in"), os.chmod("locked", 0)))
say("ready")
if os.environ.get("HOSTILE_STAY"):
    while True:
        signal.pause()
