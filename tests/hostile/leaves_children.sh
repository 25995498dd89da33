#!/bin/sh
# Exits 0 and leaves three: in its group, in a session of its own, and one that nohup protects as well.
[ "$DEADLINED_HOSTILE" = 1 ] || exit 2
sleep 30 &
setsid sleep 30 > /dev/null 2>&1 < /dev/null &
(trap '' TERM HUP INT; nohup setsid sleep 30 > /dev/null 2>&1 &)
sleep 0.2 # until setsid(1) has become sleep(1)
echo done
