"""Burns both processors: two processes, four threads each that hash outside the interpreter's lock."""

import hashlib
import threading

from _bounded import bound, fork, say


def burn():
    while True:
        hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 100_000)


bound()
say("ready")
fork()
for _ in range(3):
    threading.Thread(target=burn, daemon=True).start()
burn()
