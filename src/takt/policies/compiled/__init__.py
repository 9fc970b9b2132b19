"""Flow policies of LeRobot on the CPU engine, OpenVINO: exported once, checked at every load.

- :mod:`takt.policies.compiled.export`: torch networks to graphs; the only module with torch;
- :mod:`takt.policies.compiled.cache`: where graphs lie and when they are out of date;
- :mod:`takt.policies.compiled.reference`: made-up rows and what torch computes for them;
- :mod:`takt.policies.compiled.gate`: refuses an engine that computes something else;
- :mod:`takt.policies.compiled.network`: the stages as a worker calls them.
"""
