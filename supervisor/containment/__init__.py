"""That a process is alive, confined, or dead: the zygote's and the killer's links, slots, the second line, the probe."""
