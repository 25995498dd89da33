"""Does its work, says so, and never gets through its exit."""

import atexit
import time

from _bounded import bound, say

bound()
atexit.register(time.sleep, 1000)
say("ready")
