"""The worker: it owns one device and serves any number of gateways.

::

    gateways --Submit, Cancel--> inbox --step(events, now)--> lanes --Completed--> inbox
             <--Reply, Released------'

- :mod:`takt.runtime.loop`: what happens in an instant; no sockets, no threads, no clock.
- :mod:`takt.runtime.lanes`: threads that run launches on a CPU. A device is whatever implements
  :class:`takt.runtime.launches.Lanes`.
- :mod:`takt.runtime.paced_lanes`: a GPU's time without the GPU: launches that wait.
- :mod:`takt.runtime.profiling`: measures a device on the same lanes.
- :mod:`takt.runtime.worker`: the process around both: sockets, clock, models that load.

Start reading at :meth:`takt.runtime.loop.WorkerLoop.step`.
"""
