"""WorkerLink: how a gateway process and a worker process on one host speak to each other.

Observations travel through an arena of shared memory that belongs to the gateway and that workers
map read-only; everything else is a small message on a unix socket. The package refuses to know
models, queues or robots: it moves fixed-shape rows one way and action chunks the other, and makes
sure that a chunk can only ever reach the request it was computed for.

Start reading at :mod:`takt.link.slots` (who may touch which bytes when), then
:mod:`takt.link.ends`, which puts arena, slots' messages and channel together.
"""
