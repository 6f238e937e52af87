"""Splat, blur, slice in plain torch: the specification of every backend, stage by stage. Read it
first."""
