"""Measures what launches take on a device, alone and beside each other, on the lanes of a worker.

- :mod:`takt.runtime.profiling.median`: how well a median is known, and when that is enough.
- :mod:`takt.runtime.profiling.machines`: devices to measure: cores, or a paced device.
- :mod:`takt.runtime.profiling.bench`: runs a launch again and again, or two side by side.
- :mod:`takt.runtime.profiling.grid`: which pairs are measured, and what the others are taken for.
- :mod:`takt.runtime.profiling.cache`: what was measured before.
- :mod:`takt.runtime.profiling.profiler`: the whole of it.

Start reading at :meth:`takt.runtime.profiling.profiler.Profiler.run`.
"""
