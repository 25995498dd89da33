"""Programs without a supervisor: what a call and a kill cost when nothing but the kernel and Python is in the way."""
