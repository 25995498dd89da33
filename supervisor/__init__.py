"""The daemon: starts workers, holds deadlines, answers clients. Its public face is the command line, the socket, files
and exit codes; nothing here is meant to be imported by users, and nothing is imported before it is used.
"""

__owner__ = "deadlined"
