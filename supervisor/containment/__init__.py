"""That a process is alive, confined, or dead: the links to zygote and killer, slots, the second line, the probe."""
